import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Target } from 'lucide-react'
import { Badge, kindOf } from '../../components/badge.tsx'
import { Filter } from '../../components/filter.tsx'
import { ListPage } from '../../components/list-page.tsx'
import { useSearching } from '../../components/search.tsx'
import { Ago } from '../../components/time.tsx'
import { moment } from '../../lib/format.ts'
import { everyMs, pages } from '../../queries.ts'
import { missions as t } from '../../texts/missions.ts'
import { AgentName } from '../agents/names.ts'
import { MissionForm } from './mission-form.tsx'
import { describeSchedule, type Mission } from './schedule.tsx'

/** All missions with their health and the time of their next run. */
export function Missions() {
  const navigate = useNavigate({ from: '/missions' })
  const { status } = useSearch({ from: '/missions' })
  const searching = useSearching()
  const isState = status !== undefined && Object.hasOwn(t.states, status)
  const filter = { ...searching.filter, ...(isState && { status: status as Mission['status'] }) }
  const list = useInfiniteQuery({ ...pages('missions.list', filter), ...everyMs(10_000) })
  return (
    <ListPage
      t={t}
      icon={Target}
      list={list}
      searching={searching}
      filter={{
        field: (
          <Filter
            label={t.state}
            value={status}
            options={t.states}
            onChange={(state) => void navigate({ search: (before) => ({ ...before, status: state }), replace: true })}
          />
        ),
        isSet: isState,
      }}
      rowsOf={(page) =>
        page.missions.map((mission) => (
          <li
            key={mission.id}
            className="relative flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-3 hover:bg-panel"
          >
            <div className="min-w-0 flex-1 basis-64">
              <Link
                to="/missions/$missionId"
                params={{ missionId: mission.id }}
                className="block truncate font-medium after:absolute after:inset-0"
                dir="auto"
              >
                {mission.title}
              </Link>
              <p className="truncate text-soft">
                <bdi>
                  <AgentName id={mission.agentId} />
                </bdi>{' '}
                · {describeSchedule(mission.schedule)}
              </p>
              {mission.failureCount > 0 && mission.lastError && (
                <p className="truncate text-danger" title={mission.lastError} dir="auto">
                  {mission.lastError}
                </p>
              )}
            </div>
            <Health mission={mission} />
            <p className="text-right sm:w-64 text-soft">
              {mission.schedule.nextRun ? (
                <>
                  {t.nextOne}:{' '}
                  <span className="whitespace-nowrap">
                    {moment(mission.schedule.nextRun, mission.schedule.timezone)}
                  </span>
                </>
              ) : mission.schedule.lastRun ? (
                <>
                  {t.last}: <Ago at={mission.schedule.lastRun} />
                </>
              ) : (
                t.never
              )}
            </p>
          </li>
        ))
      }
      form={(close) => (
        <MissionForm
          mission={null}
          onClose={(id) => {
            close()
            if (id) void navigate({ to: '/missions/$missionId', params: { missionId: id } })
          }}
        />
      )}
    />
  )
}

/** The health of a mission. */
export const Health = ({ mission }: { mission: Mission }) => (
  <div className="flex flex-wrap items-center gap-1.5">
    <Badge kind={kindOf(mission.status)}>{t.states[mission.status]}</Badge>
    {mission.failureCount > 0 && <Badge kind="bad">{t.failures(mission.failureCount)}</Badge>}
    {mission.skippedCount > 0 && <Badge kind="warn">{t.skipped(mission.skippedCount)}</Badge>}
  </div>
)

import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { Plus, Target } from 'lucide-react'
import { useState } from 'react'
import { Badge, kindOf } from '../../components/badge.tsx'
import { Button } from '../../components/button.tsx'
import { More } from '../../components/more.tsx'
import { Empty, Loaded, Page, Rows } from '../../components/page.tsx'
import { Ago } from '../../components/time.tsx'
import { moment } from '../../lib/format.ts'
import { pages } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { useAgentNames } from '../agents/names.ts'
import { MissionForm } from './mission-form.tsx'
import { describeSchedule, type Mission } from './schedule.tsx'

const t = texts.missions

/** All missions with their health and the time of their next run. */
export function Missions() {
  const navigate = useNavigate()
  const nameOf = useAgentNames()
  const [isNew, setIsNew] = useState(false)
  const list = useInfiniteQuery({ ...pages('missions.list', {}), refetchInterval: 10_000 })
  const add = (
    <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
      {t.new}
    </Button>
  )
  return (
    <Page title={t.title} actions={add}>
      <Loaded query={list}>
        {({ pages: read }) => {
          const missions = read.flatMap((page) => page.missions)
          if (!missions.length) {
            return (
              <Empty icon={Target} title={t.emptyTitle} text={t.emptyText}>
                {add}
              </Empty>
            )
          }
          return (
            <Rows>
              {missions.map((mission) => (
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
                      <bdi>{nameOf(mission.agentId)}</bdi> · {describeSchedule(mission.schedule)}
                    </p>
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
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
      {isNew && (
        <MissionForm
          mission={null}
          onClose={(id) => {
            setIsNew(false)
            if (id) void navigate({ to: '/missions/$missionId', params: { missionId: id } })
          }}
        />
      )}
    </Page>
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

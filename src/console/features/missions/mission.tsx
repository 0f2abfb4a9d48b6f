import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { Ellipsis, Pause, Pencil, Play, Trash2, Zap } from 'lucide-react'
import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { Badge, kindOf } from '../../components/badge.tsx'
import { Button, IconButton } from '../../components/button.tsx'
import { ConfirmDelete } from '../../components/dialog.tsx'
import { Markdown } from '../../components/markdown.tsx'
import { Menu, MenuItem } from '../../components/menu.tsx'
import { More } from '../../components/more.tsx'
import { Loaded, Page, Rows, Section } from '../../components/page.tsx'
import { Ago } from '../../components/time.tsx'
import { duration, moment, ownTimeZone } from '../../lib/format.ts'
import { everyMs, pages, query, useAction } from '../../queries.ts'
import { useMayChange } from '../../session.ts'
import { missions as t } from '../../texts/missions.ts'
import { texts } from '../../texts.ts'
import { useAgentNames } from '../agents/names.ts'
import { LastFailure } from '../runs/failure.tsx'
import { MissionForm } from './mission-form.tsx'
import { Health } from './missions.tsx'
import { describeSchedule, type Mission as MissionShape } from './schedule.tsx'

/** One mission: its goal, its schedule and its runs. */
export function Mission() {
  const { missionId } = useParams({ from: '/missions/$missionId' })
  const mission = useQuery({ ...query('missions.get', { id: missionId }), refetchInterval: 5_000 })
  if (!mission.data) {
    return (
      <Page title={t.title}>
        <Loaded query={mission}>{() => null}</Loaded>
      </Page>
    )
  }
  return <Shown key={missionId} mission={mission.data.mission} />
}

function Shown({ mission }: { mission: MissionShape }) {
  const navigate = useNavigate()
  const nameOf = useAgentNames([mission.agentId])
  const [open, setOpen] = useState<'edit' | 'delete' | null>(null)
  const { id } = mission
  const changes = ['missions.', 'executions.']
  const run = useAction(() => callMutation('missions.run', { id }), { changes, done: t.started })
  const pause = useAction(() => callMutation('missions.pause', { id }), { changes, untilRead: true })
  const resume = useAction(() => callMutation('missions.resume', { id }), { changes, untilRead: true })
  const remove = useAction(() => callMutation('missions.delete', { id }), {
    changes,
    done: t.deleted,
    onDone: () => void navigate({ to: '/missions' }),
  })
  const mayChange = useMayChange(mission.userId)
  const isPaused = mission.status === 'paused'
  const isOver = mission.status === 'completed' || mission.status === 'failed'
  return (
    <Page
      title={mission.title}
      lead={
        <>
          <Link
            to="/agents/$agentId"
            params={{ agentId: mission.agentId }}
            className="underline underline-offset-2 hover:text-ink"
          >
            <bdi>{nameOf(mission.agentId)}</bdi>
          </Link>{' '}
          · {describeSchedule(mission.schedule)}
        </>
      }
      actions={
        <>
          <Health mission={mission} />
          {mayChange && (
            <>
              <Button kind="primary" icon={Zap} busy={run.isPending} onClick={() => run.mutate(undefined)}>
                {t.runNow}
              </Button>
              {isPaused ? (
                <Button icon={Play} busy={resume.isPending} onClick={() => resume.mutate(undefined)}>
                  {t.resume}
                </Button>
              ) : (
                !isOver && (
                  <Button icon={Pause} busy={pause.isPending} onClick={() => pause.mutate(undefined)}>
                    {t.pauseIt}
                  </Button>
                )
              )}
              <Menu trigger={<IconButton label={texts.actions} icon={Ellipsis} />}>
                <MenuItem icon={Pencil} onSelect={() => setOpen('edit')}>
                  {t.edit}
                </MenuItem>
                <MenuItem icon={Trash2} danger onSelect={() => setOpen('delete')}>
                  {t.delete}
                </MenuItem>
              </Menu>
            </>
          )}
        </>
      }
    >
      {mission.pauseReason && <p className="mb-4 rounded-lg bg-warn-tint px-4 py-2 text-warn">{mission.pauseReason}</p>}
      {mission.lastError && <LastFailure reason={mission.lastError} runId={mission.lastExecutionId} />}
      {mission.schedule.backoffSeconds !== null && (
        <p className="mb-4 text-soft">{t.backoff(mission.schedule.backoffSeconds)}</p>
      )}
      <Section title={t.goal}>
        <div className="rounded-xl border border-line px-4 py-3">
          <Markdown text={mission.goal} />
        </div>
      </Section>
      {mission.schedule.type === 'cron' && <Next id={id} timezone={mission.schedule.timezone} />}
      <Runs id={id} />
      {open === 'edit' && <MissionForm mission={mission} onClose={() => setOpen(null)} />}
      {open === 'delete' && <ConfirmDelete t={t} remove={remove} onClose={() => setOpen(null)} />}
    </Page>
  )
}

function Next({ id, timezone }: { id: string; timezone: string }) {
  const next = useQuery({ ...query('missions.next', { id, count: 5 }), refetchInterval: 30_000 })
  return (
    // The runs below have the times of the person.
    <Section title={timezone === ownTimeZone() ? t.next : t.nextIn(timezone)}>
      <Loaded query={next} lines={2}>
        {({ next: times }) =>
          times.length ? (
            <ul className="flex flex-wrap gap-2">
              {times.map((time) => (
                <li key={time}>
                  <Badge>{moment(time, timezone)}</Badge>
                </li>
              ))}
            </ul>
          ) : (
            <p className="text-soft">{t.noNext}</p>
          )
        }
      </Loaded>
    </Section>
  )
}

function Runs({ id }: { id: string }) {
  const list = useInfiniteQuery({ ...pages('missions.runs', { id }), ...everyMs(5_000) })
  return (
    <Section title={t.runs}>
      <Loaded query={list}>
        {({ pages: read }) => {
          const runs = read.flatMap((page) => page.runs)
          if (!runs.length) return <p className="text-soft">{t.noRuns}</p>
          return (
            <Rows>
              {runs.map((run) => (
                <li
                  key={run.id}
                  className="relative flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2.5 hover:bg-panel"
                >
                  <Badge kind={kindOf(run.status)}>{texts.runStates[run.status]}</Badge>
                  <Link to="/runs/$runId" params={{ runId: run.id }} className="shrink-0 after:absolute after:inset-0">
                    {moment(run.createdAt)}
                  </Link>
                  <span
                    className="min-w-0 basis-full truncate text-danger empty:hidden sm:flex-1 sm:basis-0 sm:empty:inline"
                    title={run.error}
                    dir="auto"
                  >
                    {run.status === 'failed' && run.error}
                  </span>
                  <span className="hidden text-soft tabular-nums sm:inline">
                    {run.executionTime === undefined ? '' : duration(run.executionTime)}
                  </span>
                  <span className="hidden text-soft sm:inline">
                    <Ago at={run.createdAt} />
                  </span>
                </li>
              ))}
            </Rows>
          )
        }}
      </Loaded>
      <More query={list} />
    </Section>
  )
}

import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { CircleStop, MessageSquare, RotateCcw } from 'lucide-react'
import type { ReactNode } from 'react'
import { callMutation, type Output } from '../../api.ts'
import { Badge, kindOf } from '../../components/badge.tsx'
import { Button, buttonClass } from '../../components/button.tsx'
import { Loaded, Page } from '../../components/page.tsx'
import { Tabs } from '../../components/tabs.tsx'
import { count, duration, moment } from '../../lib/format.ts'
import { useOnce } from '../../once.ts'
import { query, useAction } from '../../queries.ts'
import { useMayChange, useSession } from '../../session.ts'
import { runs as t } from '../../texts/runs.ts'
import { texts } from '../../texts.ts'
import { agentQuery, useAgentNames, usePeopleNames } from '../agents/names.ts'
import { Warnings } from '../chat/run-view.tsx'
import { Events } from './events.tsx'
import { Failure } from './failure.tsx'
import { useRunEvents } from './follow-run.ts'
import { Timeline } from './timeline.tsx'
import { Transcript } from './transcript.tsx'

export type Execution = Output<'executions.get'>['execution']

/** One run: three views of its course, and its usage. */
export function Run() {
  const { runId } = useParams({ from: '/runs/$runId' })
  const run = useQuery({ ...query('executions.get', { id: runId }), refetchInterval: 10_000 })
  if (!run.data) {
    return (
      <Page title={texts.run}>
        <Loaded query={run}>{() => null}</Loaded>
      </Page>
    )
  }
  return <Shown key={runId} run={run.data.execution} />
}

const isTab = (name: string | undefined): name is keyof typeof t.tabs => !!name && Object.hasOwn(t.tabs, name)

function Shown({ run }: { run: Execution }) {
  const navigate = useNavigate()
  const { tab, seq } = useSearch({ from: '/runs/$runId' })
  const nameOf = useAgentNames([run.agentId])
  const { events, error } = useRunEvents(run.id)
  const tree = useQuery(query('executions.tree', { id: run.id }))
  const isOn = run.status === 'pending' || run.status === 'running'
  const { user } = useSession()
  const isAgentsOwner = useQuery(agentQuery(run.agentId)).data?.userId === user.id
  const mayCancel = useMayChange(run.userId) || isAgentsOwner
  const cancel = useAction(() => callMutation('executions.cancel', { id: run.id }), {
    changes: ['executions.'],
    done: t.cancelled,
    untilRead: true,
  })
  const once = useOnce()
  const rerun = useAction(() => once('executions.rerun', { id: run.id, background: true }), {
    changes: ['executions.', 'chats.'],
    onDone: ({ executionId }) => void navigate({ to: '/runs/$runId', params: { runId: executionId } }),
  })
  const current = isTab(tab) ? tab : seq ? 'events' : 'timeline'
  return (
    <Page
      wide
      title={nameOf(run.agentId)}
      lead={
        <>
          <span className="line-clamp-2 max-w-3xl" dir="auto">
            {run.message}
          </span>
          <span className="font-mono text-xs">{run.id}</span>
        </>
      }
      actions={
        <>
          <Badge kind={run.waitingFor ? 'warn' : kindOf(run.status)}>
            {run.waitingFor ? t.waits[run.waitingFor] : texts.runStates[run.status]}
          </Badge>
          <Link to="/chats/$chatId" params={{ chatId: run.chatId }} className={buttonClass()}>
            <MessageSquare size={15} aria-hidden />
            {t.openChat}
          </Link>
          {isOn && mayCancel && (
            <Button kind="danger" icon={CircleStop} busy={cancel.isPending} onClick={() => cancel.mutate(undefined)}>
              {t.cancel}
            </Button>
          )}
          {!isOn && (
            <Button icon={RotateCcw} busy={rerun.isPending} onClick={() => rerun.mutate(undefined)}>
              {t.rerun}
            </Button>
          )}
        </>
      }
    >
      {run.restricted && <p className="mb-4 text-soft">{t.restricted}</p>}
      {run.error && run.status === 'failed' && (
        <div role="alert" className="mb-4">
          <Failure code={run.errorCode ?? ''} reason={run.error} />
        </div>
      )}
      <Warnings warnings={run.warnings.map(({ text }) => text)} />
      <Facts run={run} treeUsage={tree.data?.usage ?? null} />
      {error !== null && error !== undefined ? (
        <Loaded query={{ data: undefined, error, isPending: false, refetch: () => location.reload() }}>
          {() => null}
        </Loaded>
      ) : (
        <Tabs
          label={texts.run}
          tabs={t.tabs}
          value={current}
          onChange={(name) =>
            void navigate({ to: '/runs/$runId', params: { runId: run.id }, search: { tab: name }, replace: true })
          }
        >
          {current === 'timeline' && <Timeline run={run} tree={tree.data?.tree ?? null} events={events} />}
          {current === 'transcript' && <Transcript run={run} events={events} />}
          {current === 'events' && <Events events={events} at={seq ? Number(seq) : null} />}
        </Tabs>
      )}
    </Page>
  )
}

function Facts({ run, treeUsage }: { run: Execution; treeUsage: Execution['usage'] | null }) {
  const tokens = `${count(run.usage.input_tokens)} / ${count(run.usage.output_tokens)}`
  const all = treeUsage && `${count(treeUsage.input_tokens)} / ${count(treeUsage.output_tokens)}`
  const facts: readonly (readonly [string, string | null | undefined])[] = [
    [t.model, run.model],
    [`${t.inputTokens} / ${t.outputTokens}`, tokens],
    [t.ofTree, all === tokens ? null : all],
    [t.time, run.executionTime === undefined ? null : duration(run.executionTime)],
    [t.started, moment(run.startedAt ?? run.createdAt)],
    [t.stopReason, run.stopReason && t.stopReasons[run.stopReason]],
    [t.tried, run.modelsTried.join(', ')],
    [t.agentVersion, String(run.agentVersion)],
    [t.attempt, run.attempt > 1 ? String(run.attempt) : null],
  ]
  return (
    <dl className="mt-2 mb-5 grid grid-cols-2 gap-x-6 gap-y-3 rounded-xl border border-line px-4 py-3 sm:grid-cols-3 lg:grid-cols-4">
      {facts.map(
        ([name, value]) =>
          value && (
            <Fact key={name} name={name} title={value}>
              {value}
            </Fact>
          ),
      )}
      <Origin run={run} />
    </dl>
  )
}

const Fact = ({ name, title, children }: { name: string; title?: string; children: ReactNode }) => (
  <div className="min-w-0">
    <dt className="text-soft text-xs">{name}</dt>
    <dd className="truncate font-medium tabular-nums" title={title} dir="auto">
      {children}
    </dd>
  </div>
)

const LINK = 'text-accent underline underline-offset-2'

/** The person for whom a run acts, and its agent, mission, task, space and calling run, as far as the person can see them. */
function Origin({ run }: { run: Execution }) {
  const { missionId, taskId, spaceId, parentExecutionId } = run
  const starter = usePeopleNames([run.userId])(run.userId)
  const agent = useQuery(agentQuery(run.agentId)).data
  const mission = useQuery({ ...query('missions.get', { id: missionId ?? '' }), enabled: !!missionId }).data?.mission
  const task = useQuery({ ...query('tasks.get', { id: taskId ?? '' }), enabled: !!taskId }).data?.task
  const space = useQuery(query('spaces.get', { id: spaceId })).data?.space
  return (
    <>
      {starter && <Fact name={t.startedBy}>{starter}</Fact>}
      {agent && (
        <Fact name={t.agent}>
          <Link to="/agents/$agentId" params={{ agentId: run.agentId }} className={LINK}>
            {agent.name}
          </Link>
        </Fact>
      )}
      {mission && (
        <Fact name={t.mission}>
          <Link to="/missions/$missionId" params={{ missionId: mission.id }} className={LINK}>
            {mission.title}
          </Link>
        </Fact>
      )}
      {task && (
        <Fact name={t.task}>
          <Link to="/tasks" search={{ task: task.id }} className={LINK}>
            {task.title}
          </Link>
        </Fact>
      )}
      {space && !space.isDefault && (
        <Fact name={t.space}>
          <Link to="/spaces/$spaceId" params={{ spaceId }} className={LINK}>
            {space.name}
          </Link>
        </Fact>
      )}
      {parentExecutionId && (
        <Fact name={t.parent}>
          <Link to="/runs/$runId" params={{ runId: parentExecutionId }} className={LINK}>
            {t.parentRun}
          </Link>
        </Fact>
      )}
    </>
  )
}

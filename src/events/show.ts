import { toAgent } from '../agents/rows.ts'
import { reachable as reachableAgent } from '../agents/visibility.ts'
import { findMany as findApprovals } from '../approvals/service.ts'
import { type Actor, isAdmin } from '../auth/actor.ts'
import { findMany as findChats } from '../chats/service.ts'
import type { EventRow } from '../db/events.ts'
import type { Deps } from '../deps.ts'
import { findMany as findExecutions } from '../executions/service.ts'
import { beginning } from '../lib/text.ts'
import { asText } from '../lib/unknown.ts'
import { findMany as findMissions } from '../missions/rows.ts'
import { findMany as findTasks } from '../tasks/rows.ts'

/** An event as a reader gets it. */
export type VisibleEvent = {
  id: string
  type: string
  timestamp: string
  sequence: number
  organizationId: string
  data: Data
}

type Data = Readonly<Record<string, unknown>>
type Kind = {
  find: (actor: Actor, deps: Deps, ids: readonly string[], options: { isWhole: boolean }) => Promise<readonly Data[]>
  content: string[]
}

/** Fields of a run that it has only once it has ended. */
const ENDED = [
  'result',
  'resultObject',
  'error',
  'errorCode',
  'stopReason',
  'warnings',
  'completedAt',
  'executionTime',
  'waitingFor',
]
const DECIDED = ['editedInput', 'editedBy', 'reason', 'decidedBy', 'decidedAt']

/** How subjects of each kind are found, and their fields with content: prompts, results, inputs and the like. */
const KINDS: Readonly<Record<string, Kind>> = {
  execution: { find: findExecutions, content: ['message', 'result', 'resultObject', 'mediaIds', 'warnings'] },
  approval: { find: findApprovals, content: ['input', 'editedInput', 'description', 'reason'] },
  chat: { find: findChats, content: ['lastMessage'] },
  task: { find: findTasks, content: ['description', 'result', 'lastError'] },
  mission: { find: findMissions, content: ['goal', 'lastError'] },
  agent: { find: findAgents, content: ['systemPrompt', 'description', 'initialGreeting', 'modelSettings'] },
  webhook: { find: async () => [], content: [] },
}

/** Finds the agents that the caller can reach, archived ones too. */
async function findAgents(actor: Actor, { db }: Deps, ids: readonly string[]): Promise<readonly Data[]> {
  const { archivedAt: _, ...reachable } = reachableAgent(actor)
  const rows = await db.agent.findMany({ where: { AND: [{ id: { in: [...ids] } }, reachable] } })
  // References to other subjects are filtered for each viewer, so that an event has none.
  return rows.map((row) => without(toAgent(row), REFERENCES))
}

const REFERENCES = ['skillIds', 'skillRefs', 'mcpInstanceIds', 'subagentIds', 'image']

const kindOf = (type: string): string => type.split('.', 1)[0] ?? ''

/** Kinds whose events all members, or all admins, can see even after the subject was deleted. */
const isOpen = (actor: Actor, kind: string): boolean => kind === 'task' || (kind === 'webhook' && isAdmin(actor))

/** Maximum length of an error (characters), which may be an answer of a provider. */
const MAX_ERROR = 500

/**
 * Returns the events as the caller may see them at this moment, null for each that the caller cannot see: at most a few
 * statements for each kind of subject. Subjects without content unless `includeContent`.
 */
export async function show(
  actor: Actor,
  deps: Deps,
  rows: readonly EventRow[],
  { includeContent = false } = {},
): Promise<(VisibleEvent | null)[]> {
  const subjects = new Map<string, ReadonlyMap<string, Data>>()
  for (const [kind, some] of Map.groupBy(rows, ({ type }) => kindOf(type))) {
    const found = await KINDS[kind]?.find(actor, deps, [...new Set(some.map(({ subjectId }) => subjectId))], {
      isWhole: includeContent,
    })
    subjects.set(kind, new Map(found?.map((subject) => [subject.id as string, subject])))
  }
  return rows.map((row) => {
    const kind = kindOf(row.type)
    const subject = subjects.get(kind)?.get(row.subjectId)
    if (!subject && !isOpen(actor, kind)) return null
    return {
      id: `evt-${actor.organizationId}-${row.position}-${row.sequence}`,
      type: row.type,
      timestamp: row.at.toISOString(),
      sequence: row.sequence,
      organizationId: actor.organizationId,
      data: dataOf(
        row,
        subject ?? { id: row.subjectId, ...(kind === 'task' && { deleted: true }) },
        KINDS[kind]?.content ?? [],
        includeContent,
      ),
    }
  })
}

/** Returns the data of an event: the subject as it was at that moment, as far as that was stored or is known. */
function dataOf(row: EventRow, subject: Data, content: readonly string[], includeContent: boolean): Data {
  const stored = row.data === null ? {} : (JSON.parse(row.data) as Data)
  const { error, ...then } = { ...before(row.type, subject), ...stored }
  return {
    ...(includeContent ? then : without(then, content)),
    ...(typeof error === 'string' && { error: includeContent ? error : beginning(error, MAX_ERROR) }),
  }
}

/** Returns a subject as it was when an event of this type happened: it may have moved on. */
function before(type: string, subject: Data): Data {
  switch (type) {
    case 'execution.started':
      return { ...without(subject, ENDED), status: 'running', stopReason: null, usage: NO_USAGE }
    case 'execution.waiting':
      return { ...without(subject, ENDED), status: 'pending', waitingFor: 'approval', stopReason: null }
    case 'approval.created':
      return { ...without(subject, DECIDED), status: 'pending' }
    case 'chat.needs_attention':
      return { ...subject, status: 'needs_attention' }
    default:
      return subject
  }
}

const NO_USAGE = { input_tokens: 0, output_tokens: 0 }

const without = (subject: Data, names: readonly string[]): Data =>
  Object.fromEntries(Object.entries(subject).filter(([name]) => !names.includes(name)))

/** Returns the title of the subject of an event, empty if it has none. */
export const titleOf = ({ data }: VisibleEvent): string =>
  asText(data.title ?? data.name ?? data.agentName ?? data.tool ?? data.shownUrl)

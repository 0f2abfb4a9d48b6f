import type { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import { ownSessions } from '../../chats/messages.ts'
import { reachable as reachableChat } from '../../chats/service.ts'
import type { Prisma, Tx } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { notFound } from '../../errors.ts'
import { branchOf } from '../../executions/again.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { chatTitleOf } from '../../executions/engine/queue/join-conversation.ts'
import type { Branch, Conversation } from '../../executions/engine/queue/requests.ts'
import { accept, type ExecuteCall, type ExecuteOptions } from '../../executions/execute.ts'
import { checkHistory } from '../../executions/find-conversation.ts'
import type { Execute } from '../../executions/schema.ts'
import { isUniqueViolation } from '../../lib/database-errors.ts'
import { onceDone } from '../../lib/once.ts'
import { searchedIn } from '../../lib/search.ts'
import { asList, asObject } from '../../lib/unknown.ts'
import { findOrDefault } from '../../spaces/service.ts'
import { type GivenFile, MAX_FILES, storeFiles, storeReadable } from './attachments.ts'
import { giveEarlierResults } from './client-tools.ts'
import { compare, readTurns, type StoredTurn } from './history.ts'
import type { ClientResult, ClientTurn } from './turns.ts'

export type Protocol = 'openai' | 'ai-sdk' | 'ag-ui' | 'a2a' | 'mcp'

/** A run that a client of another protocol asks for. */
export type RunRequest = {
  agent: CachedAgent
  protocol: Protocol
  /** Address of the request, which an Idempotency-Key belongs to, and its body. */
  path: string
  body: object
  message: string
  /** The client's name of the conversation; null for a new conversation, or for one with `sessionId`. */
  name: string | null
  /** The session to continue. */
  sessionId?: string | null
  /** The run to continue after: in its session if it is the last one there, else in a branch. */
  behind?: ExecutionRow | null
  /** The messages before this one as the client has them; null if it leaves them to the service. */
  history: readonly ClientTurn[] | null
  /** Results of the client's own tools that it sends before the message. */
  results?: readonly ClientResult[]
  /** Files of the message. */
  files?: readonly GivenFile[]
  /** Answers the message again, although a run may be answering it now. */
  isAnew?: boolean
  /** Further fields of an execute request. */
  options?: Partial<Omit<z.output<typeof Execute>, 'id' | 'message' | 'sessionId' | 'chatId'>>
  client?: ExecuteOptions['client']
}

/** Returns whether a text is the id of a session, as opposed to a client's own name of a conversation. */
export const isSessionId = (text: string): boolean => /^\w{31}$/.test(text)

/**
 * Returns the conversation that a client means by a text: the session with this id, or its own name; null for a new
 * one.
 */
export const conversationOf = (text: string | null): Pick<RunRequest, 'name' | 'sessionId'> =>
  text !== null && isSessionId(text) ? { name: null, sessionId: text } : { name: text, sessionId: null }

/** Number of times that a run is placed anew because another request used the same new name. */
const MAX_TRIES = 3

/**
 * Starts a run in the conversation that the client names (contract-2.md section 6). Messages that repeat the session
 * are dropped; a history that differs goes into a branch. A repeated request whose run is still active joins that run.
 * Throws the errors of `accept`.
 */
export async function startRun(
  actor: Actor,
  deps: Deps,
  request: RunRequest,
  { idempotency, onAccepted, countRun }: Pick<ExecuteCall, 'idempotency' | 'onAccepted' | 'countRun'>,
): Promise<ExecutionRow> {
  const { agent, path, body, message, options, client } = request
  // A run that is placed anew counts once.
  const call = { idempotency, onAccepted, countRun: countRun && onceDone(() => countRun(actor)) }
  const files = await storeFiles(actor, deps, request.files ?? [])
  const own = [...(options?.mediaIds ?? []), ...files]
  for (let tries = 1; ; tries++) {
    const { joins, ...place } = await findPlace(actor, deps, request)
    if (joins) {
      onAccepted?.(joins, actor)
      return joins
    }
    const earlier = await storeReadable(actor, deps, place.files ?? [], MAX_FILES - own.length)
    const mediaIds = [...new Set([...own, ...earlier])]
    const input = {
      ...options,
      onBusy: options?.onBusy ?? place.onBusy,
      id: agent.id,
      message,
      ...(mediaIds.length && { mediaIds }),
    }
    try {
      return await accept(actor, deps, input, call, {
        path,
        request: body,
        agent,
        conversation: place.conversation,
        ...(place.also && { also: place.also }),
        ...(client && { client }),
      })
    } catch (error) {
      if (!place.also || !isUniqueViolation(error) || tries === MAX_TRIES) throw error
    }
  }
}

type Place = {
  conversation: Conversation
  /** The files of the history that a new session or branch begins with. Its run shows them with the message. */
  files?: readonly GivenFile[]
  onBusy?: 'interrupt'
  also?: ExecuteOptions['also']
  /** The active run of an earlier request with the same messages. */
  joins?: ExecutionRow
}

const filesOf = (history: readonly ClientTurn[]) => history.flatMap(({ files }) => files)

const NO_SESSION =
  'The conversation was deleted, or there is none with this id of this agent that you can see. Leave its id out to begin another one.'

/** Columns of a session that its continuation and its branches need. */
const SESSION = {
  id: true,
  agentId: true,
  chatId: true,
  rootSessionId: true,
  activeBranchId: true,
  parentSessionId: true,
  parentPosition: true,
  wasPrivate: true,
  lastQueueSeq: true,
  chat: { select: { id: true, spaceId: true } },
} as const

type SessionRow = Prisma.SessionGetPayload<{ select: typeof SESSION }>

/** Finds the place of a run. Throws 404 for a session or a space that the caller cannot reach. */
async function findPlace(actor: Actor, deps: Deps, request: RunRequest): Promise<Place> {
  const { name, history, behind = null } = request
  const sessionId = behind?.sessionId ?? request.sessionId ?? null
  const named = sessionId === null && name !== null ? await findName(actor, deps, request, name) : null
  const session = await findSession(actor, deps, request, sessionId ?? named?.sessionId)
  if (!session && sessionId !== null) throw notFound('Session', NO_SESSION)
  if (!session) {
    const spaceId = await findOrDefault(actor, deps, request.options?.spaceId)
    const given = history ?? []
    return {
      conversation: { spaceId, ...(given.length && { given }) },
      files: filesOf(given),
      ...(name !== null && { also: naming(actor, request, name, named !== null) }),
    }
  }
  await checkHistory(actor, deps, session.chatId, session)
  const place = { spaceId: session.chat.spaceId, chatId: session.chatId }
  if (behind && session.lastQueueSeq > behind.queueSeq) {
    return { conversation: { ...place, branch: branchOf(session, behind.queueSeq + 1) } }
  }
  if (!history) {
    const isWaiting = await giveEarlierResults(actor, deps, session.id, request.results)
    // A page that sends a message has no more use for the answer before. Programs may have both runs in the background.
    const onBusy = (isWaiting || request.protocol === 'ai-sdk') && { onBusy: 'interrupt' as const }
    return { conversation: { ...place, sessionId: session.id }, ...onBusy }
  }
  return continued(actor, deps, request, session, history, place)
}

/** Continues a session with the messages that the client has, in it or in a branch. */
async function continued(
  actor: Actor,
  deps: Deps,
  request: RunRequest,
  session: SessionRow,
  history: readonly ClientTurn[],
  place: { spaceId: string; chatId: string },
): Promise<Place> {
  const { name, message, protocol } = request
  const turns = await readTurns(deps.db, session.id)
  const compared = compare(history, turns)
  // Clients of OpenAI request titles in the conversation, which are not meant for its reader: before its first message
  // or after it. Agent clients send their tools with the conversation alone.
  const first = protocol === 'openai' && compared !== 'same' ? await findRun(deps, turns[0]) : null
  const isAfterTitle = hasTools(request.client) && first !== null && !hasTools(first.overrides)
  const isTitle = first !== null && hasTools(first.overrides) && !hasTools(request.client)
  const into = (branch: Branch, given: readonly ClientTurn[] = []): Place => ({
    conversation: { ...place, branch, ...(given.length && { given }) },
    files: filesOf(given),
    ...(name !== null &&
      !branch.isAside && {
        also: async (tx, executionId, now) => {
          await naming(actor, request, name, true)(tx, executionId, now)
          if (isAfterTitle) await retitle(tx, session.chatId, turns[0], history[0]?.message ?? message)
        },
      }),
  })
  const inSession = async (sessionId: string, also?: Place['also']): Promise<Place> => {
    if (request.results?.length) {
      await giveEarlierResults(actor, deps, sessionId, request.results, history.at(-1)?.toolCalls)
    }
    return { conversation: { ...place, sessionId }, onBusy: 'interrupt', ...(also && { also }) }
  }
  if (compared === 'same') return inSession(session.id)
  const other = compared ? null : await findSame(actor, deps, session, history)
  if (other) return inSession(other.id, name === null ? undefined : naming(actor, request, name, true))
  if (!compared) {
    const { id: of, rootSessionId, wasPrivate } = session
    const start = { parentSessionId: null, parentPosition: null, queueSeq: history.length + 1 }
    return into({ of, rootSessionId: rootSessionId ?? of, ...start, wasPrivate, isAside: isTitle }, history)
  }
  const isLast = turns.at(-1) === compared
  const isSame = isLast && !request.isAnew && compared.message === message && !isAfterTitle && !isTitle
  const joins = isSame && (await findActive(actor, deps, compared))
  if (joins) return { conversation: place, joins }
  const owner =
    compared.sessionId === session.id ? session : await findSession(actor, deps, request, compared.sessionId)
  const isAside = protocol === 'openai' && !history.length && (isTitle || compared.message !== message) && !isAfterTitle
  return into({ ...branchOf(owner ?? session, compared.queueSeq), isAside })
}

/** The agent and the protocol to which a client's names of conversations belong. */
type Placed = Pick<RunRequest, 'agent' | 'protocol'>

/** Finds the session that a name leads to. */
function findName({ organizationId, userId }: Actor, { db }: Deps, { agent, protocol }: Placed, name: string) {
  const key = { organizationId, userId, agentId: agent.id, protocol, name }
  return db.conversationName.findUnique({
    where: { organizationId_userId_agentId_protocol_name: key },
    select: { sessionId: true },
  })
}

/** Finds a session of the agent that the caller can reach. */
async function findSession(actor: Actor, { db }: Deps, { agent }: Pick<Placed, 'agent'>, id: string | undefined) {
  if (id === undefined) return null
  const where = { id, agentId: agent.id, chat: reachableChat(actor), ...ownSessions(actor) }
  return db.session.findFirst({ where, select: SESSION })
}

/** Maximum number of branches that are compared with a client's history. */
const MAX_BRANCHES = 20

/** Finds the newest branch beside a session that has exactly the client's history. */
async function findSame(actor: Actor, { db }: Deps, session: SessionRow, history: readonly ClientTurn[]) {
  const root = session.rootSessionId ?? session.id
  const branches = await db.session.findMany({
    where: { AND: [{ chatId: session.chatId, OR: [{ id: root }, { rootSessionId: root }] }, ownSessions(actor)] },
    orderBy: [{ createdAt: 'desc' }, { id: 'desc' }],
    take: MAX_BRANCHES,
    select: { id: true },
  })
  for (const { id } of branches) {
    if (id !== session.id && compare(history, await readTurns(db, id)) === 'same') return { id }
  }
  return null
}

const hasTools = (client: unknown): boolean => asList(asObject(client).clientTools).length > 0

/** Finds the run of a turn. */
const findRun = async ({ db }: Deps, turn: StoredTurn | undefined) =>
  turn ? db.execution.findUnique({ where: { id: turn.executionId }, select: { overrides: true } }) : null

/** Gives a chat the title of its conversation if it has that of an earlier turn. */
async function retitle(tx: Tx, id: string, turn: StoredTurn | undefined, message: string): Promise<void> {
  const where = { id, title: chatTitleOf(turn?.message ?? '') }
  const title = chatTitleOf(message)
  await tx.chat.updateMany({ where, data: { title, ...searchedIn(title) } })
}

/** Returns the run of a turn if it is active and the caller's own. */
async function findActive({ userId }: Actor, { db }: Deps, { executionId }: StoredTurn) {
  return db.execution.findFirst({ where: { id: executionId, userId, terminalSeq: null, wantsCancel: false } })
}

/** Returns a function that makes a name lead to the session of a run, in the transaction that accepts it. */
function naming({ organizationId, userId }: Actor, { agent, protocol }: RunRequest, name: string, isThere: boolean) {
  const key = { organizationId, userId, agentId: agent.id, protocol, name }
  return async (tx: Tx, executionId: string, updatedAt: Date): Promise<void> => {
    const { sessionId } = await tx.execution.findUniqueOrThrow({
      where: { id: executionId },
      select: { sessionId: true },
    })
    if (isThere) await tx.conversationName.updateMany({ where: key, data: { sessionId, updatedAt } })
    else await tx.conversationName.createMany({ data: { ...key, sessionId, createdAt: updatedAt, updatedAt } })
  }
}

/** Returns the id of a session of the agent that the caller can reach, or null. */
export async function findSessionId(actor: Actor, deps: Deps, agent: CachedAgent, id: string): Promise<string | null> {
  return (await findSession(actor, deps, { agent }, id))?.id ?? null
}

/**
 * Returns the newest run of the conversation that a client names, or null if there is none that the caller can reach.
 */
export async function findLatest(
  actor: Actor,
  deps: Deps,
  request: Placed,
  name: string,
): Promise<ExecutionRow | null> {
  const named = await findName(actor, deps, request, name)
  const session = await findSession(actor, deps, request, named?.sessionId)
  if (!session) return null
  return deps.db.execution.findFirst({ where: { sessionId: session.id }, orderBy: { queueSeq: 'desc' } })
}

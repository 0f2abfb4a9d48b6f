import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { listedMessages, ownSessions } from '../chats/messages.ts'
import type { SendMessage } from '../chats/schema.ts'
import { reachable as reachableChat } from '../chats/service.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, invalidField, notFound } from '../errors.ts'
import type { Branch, Overrides } from './engine/queue/requests.ts'
import { type ExecuteCall, executeAgent } from './execute.ts'
import { checkHistory, findSession } from './find-conversation.ts'
import type { Rerun } from './schema.ts'
import { find } from './service.ts'

// Runs that replace earlier turns in branches (contract-2.md section 1.12).

/** Columns of a session that a branch of it needs. */
const SESSION = {
  id: true,
  agentId: true,
  rootSessionId: true,
  activeBranchId: true,
  parentSessionId: true,
  parentPosition: true,
  wasPrivate: true,
} as const

/** Columns of a run that is repeated. */
const RUN = {
  queueSeq: true,
  message: true,
  mediaIds: true,
  files: true,
  modelOverride: true,
  overrides: true,
} as const

type SessionRow = Prisma.SessionGetPayload<{ select: typeof SESSION }>
type RunRow = Prisma.ExecutionGetPayload<{ select: typeof RUN }>
type Turn = { session: SessionRow; run: RunRow }

/** Returns the branch of a session that replaces its turns from a number on. */
export function branchOf(
  { id, rootSessionId, parentSessionId, parentPosition, wasPrivate }: Omit<SessionRow, 'agentId' | 'activeBranchId'>,
  queueSeq: number,
): Branch {
  const first = (parentPosition ?? 0) / 2 + 1
  const parent =
    queueSeq > first
      ? { parentSessionId: id, parentPosition: queueSeq * 2 - 2 }
      : // The branch keeps no turn of this session, so it continues the parent.
        { parentSessionId, parentPosition }
  return { of: id, rootSessionId: rootSessionId ?? id, ...parent, queueSeq, wasPrivate }
}

/**
 * POST /chats/{id}/messages: executes the chat's agent on a message in the chat's active session. `replaces` replaces
 * an earlier message, `regenerate` answers an earlier one again, both in a branch. Throws 400 for a chat without an
 * agent or a message to answer, and for a message that is not a user's; 404 for a chat, session or message that the
 * caller cannot reach; and the errors of {@link executeAgent}.
 */
export async function send(actor: Actor, deps: Deps, input: z.output<typeof SendMessage>, call: ExecuteCall) {
  const { id, message = null, replaces = null, regenerate, sessionId = null, ...options } = input
  if (regenerate && message !== null)
    throw invalidField('message', 'none beside regenerate', 'Leave out `message`, or leave out `regenerate`.')
  if (!regenerate && message === null) throw badRequest('Missing required field: message')
  const chat = await deps.db.chat.findFirst({
    where: { AND: [{ id }, reachableChat(actor)] },
    select: { id: true, spaceId: true, agentId: true },
  })
  if (!chat) throw notFound('Chat')
  const { idempotencyKey: _, ...request } = input
  const purpose = { path: `/api/v1/chats/${id}/messages`, request }
  const turn =
    replaces !== null
      ? await findTurn(actor, deps, id, replaces)
      : regenerate
        ? await findLastTurn(actor, deps, chat, sessionId)
        : null
  if (turn) return repeat(actor, deps, { ...options, message }, call, { ...purpose, turn, chat })
  const session = sessionId === null && chat.agentId ? null : await findSession(actor, deps, { chatId: id, sessionId })
  if (sessionId !== null && !session) throw notFound('Session')
  const agentId = session?.agentId ?? chat.agentId
  if (!agentId) {
    const detail = 'Run an agent in it: POST /agents/{id}/execute with its chatId.'
    throw badRequest('Chat has no agent', { detail })
  }
  return executeAgent(
    actor,
    deps,
    { ...options, id: agentId, message: message ?? '', chatId: id, sessionId },
    call,
    purpose,
  )
}

/** Finds the turn of a user's message in a chat. */
async function findTurn(actor: Actor, { db }: Deps, chatId: string, id: string): Promise<Turn> {
  const found = await db.message.findFirst({
    where: { id, chatId, ...listedMessages(actor) },
    select: { role: true, position: true, session: { select: SESSION }, execution: { select: RUN } },
  })
  if (!found) throw notFound('Message')
  if (found.role !== 'user')
    throw invalidField(
      'replaces',
      'the id of a user message',
      'GET /chats/{id}/messages has them: choose one with the role user.',
    )
  // A client of another protocol gave it as history.
  if (found.position !== found.execution.queueSeq * 2 - 1) {
    throw invalidField(
      'replaces',
      'the id of a message that an agent was asked here',
      'GET /chats/{id}/messages has them: choose one of this chat.',
    )
  }
  return { session: found.session, run: found.execution }
}

/** Finds the last turn of the chat's active session, or of the named one. */
async function findLastTurn(
  actor: Actor,
  deps: Deps,
  chat: { id: string; agentId: string | null },
  sessionId: string | null,
): Promise<Turn> {
  const of = sessionId === null ? { agentId: chat.agentId } : { sessionId }
  const found = await findSession(actor, deps, { chatId: chat.id, ...of })
  if (!found && sessionId !== null) throw notFound('Session')
  const session = found && (await deps.db.session.findUnique({ where: { id: found.id }, select: SESSION }))
  const where = { sessionId: session?.id ?? '' }
  const run = await deps.db.execution.findFirst({ where, orderBy: { queueSeq: 'desc' }, select: RUN })
  if (!session || !run)
    throw badRequest('Chat has no message to answer again', { detail: 'Send a `message` without `regenerate` first.' })
  return { session, run }
}

/**
 * POST /executions/{id}/rerun: executes the agent again on the message of a run, in a branch of its session that
 * replaces that run. The new run belongs to no task, mission or tree. Throws 404 for a run that the caller cannot read,
 * and if its chat was deleted; and the errors of {@link executeAgent}.
 */
export async function rerun(actor: Actor, deps: Deps, input: z.output<typeof Rerun>, call: ExecuteCall) {
  const { id, ...options } = input
  const run = await find(actor, deps, id)
  const found = await deps.db.session.findFirst({
    where: { id: run.sessionId, chat: reachableChat(actor), ...ownSessions(actor) },
    select: SESSION,
  })
  if (!found) throw notFound('Chat')
  const { idempotencyKey: _, ...request } = input
  const purpose = { path: `/api/v1/executions/${id}/rerun`, request }
  const chat = { id: run.chatId, spaceId: run.spaceId }
  return repeat(actor, deps, options, call, { ...purpose, turn: { session: found, run }, chat })
}

type Options = Omit<z.output<typeof SendMessage>, 'id' | 'message'> & { message?: string | null | undefined }

type Repeated = { path: string; request: object; turn: Turn; chat: { id: string; spaceId: string } }

/** Replaces a turn with another message, or with the same one and the same model unless another is named. */
async function repeat(
  actor: Actor,
  deps: Deps,
  { message = null, ...options }: Options,
  call: ExecuteCall,
  { path, request, turn: { session, run }, chat }: Repeated,
) {
  await checkHistory(actor, deps, chat.id, session)
  const { modelSettings = null, fallbackModels = null, output = null } = run.overrides as Overrides
  const before = message === null ? { model: run.modelOverride, modelSettings, fallbackModels, output } : {}
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined && value !== null))
  const input = { ...before, ...given, id: session.agentId, message: message ?? run.message }
  const conversation = { spaceId: chat.spaceId, chatId: chat.id, branch: branchOf(session, run.queueSeq) }
  const attached = { mediaIds: run.mediaIds as string[], files: run.files as string[] }
  return executeAgent(actor, deps, input, call, { path, request, conversation, attached })
}

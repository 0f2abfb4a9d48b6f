import type { IncomingMessage, ServerResponse } from 'node:http'
import type { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import { textOf, toAppError } from '../../errors.ts'
import { find } from '../../executions/service.ts'
import { ChatRequest } from '../../http/door-schemas.ts'
import { asObject } from '../../lib/unknown.ts'
import type { Context } from '../../trpc.ts'
import type { RouteMatch } from '../doors.ts'
import { findAgent } from '../shared/agents.ts'
import { type Decision, decideAll, isWaitingForApproval } from '../shared/approvals.ts'
import { clientOf, continueOrStart } from '../shared/begin.ts'
import type { RunFrom } from '../shared/client-tools.ts'
import { enter, idempotencyOf, nameRun, readBody } from '../shared/enter.ts'
import { frame, writeFrames } from '../shared/frames.ts'
import { checkQuestion } from '../shared/questions.ts'
import { followParts } from '../shared/run-parts.ts'
import { findLatest, type RunRequest } from '../shared/runs.ts'
import { readTools } from '../shared/tools.ts'
import { decisionsIn, readMessages, resultsIn } from './messages.ts'
import { type Chunk, createChunkWriter } from './writer.ts'

const Request = ChatRequest.refine(({ messages, message }) => messages?.length || message, {
  error: 'Missing required field: messages',
  path: ['messages'],
})

/**
 * Answers the requests of the AI SDK's `useChat` (contract-2.md section 6.3): `POST /agents/{id}/chat` runs the agent
 * and streams the answer, `GET /agents/{id}/chat/{chatId}/stream` replays an answer that is being given.
 */
export async function handle(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  match: RouteMatch,
): Promise<void> {
  const actor = await enter(context, req, match)
  const [wanted = '', chatId] = match.parameters
  const agent = await findAgent(actor, context.deps, wanted)
  if (chatId !== undefined) return resume(context, actor, res, agent, chatId)
  const { path } = match
  const body = await readBody({ context, actor, req }, Request)
  const idempotency = idempotencyOf(req, path)
  const last = body.message ?? body.messages?.at(-1)
  const decisions = decisionsIn(last)
  const run = decisions.length
    ? await decideAll(actor, context.deps, decisions)
    : await continueOrStart(context, actor, {
        agent,
        results: resultsIn(last),
        idempotency,
        toRunRequest: () => toRunRequest(agent, path, body),
      })
  nameRun(res, run.row, idempotency)
  return stream(context, actor, res, { ...run, decisions })
}

/** Returns the run that a request asks for. Throws 400 for messages that no run can have. */
function toRunRequest(agent: CachedAgent, path: string, body: z.output<typeof Request>): RunRequest {
  const { id, messages, message, trigger, tools, system, ...options } = body
  const transcript = readMessages(message ? [message] : (messages ?? []), system)
  return {
    agent,
    protocol: 'ai-sdk',
    path,
    body,
    options,
    message: checkQuestion(transcript.question, 'messages'),
    name: id ?? null,
    history: message ? null : transcript.history,
    results: transcript.allResults,
    files: transcript.files,
    isAnew: trigger === 'regenerate-message',
    client: clientOf(transcript, readTools(listOf(tools))),
  }
}

/** Lists the functions of a page. assistant-ui has them by their names. */
const listOf = (tools: z.output<typeof Request>['tools']): readonly unknown[] =>
  Array.isArray(tools)
    ? tools
    : Object.entries(tools ?? {}).map(([name, tool]) => ({ ...asObject(tool), type: 'function', name }))

async function resume(context: Context, actor: Actor, res: ServerResponse, agent: CachedAgent, chatId: string) {
  const { deps } = context
  const latest = await findLatest(actor, deps, { agent, protocol: 'ai-sdk' }, chatId)
  if (!latest || latest.terminalSeq !== null) return void res.writeHead(204).end()
  await stream(context, actor, res, { row: await find(actor, deps, latest.id), after: 0, decisions: [] })
}

/** A run from an event on, and the decisions with which the page continues it. */
type Continued = RunFrom & { decisions: readonly Decision[] }

function stream(context: Context, actor: Actor, res: ServerResponse, run: Continued) {
  return writeFrames(res, toFrames(context, actor, run), {
    headers: { 'x-vercel-ai-ui-message-stream': 'v1' },
    // Without the end of the stream the page knows that it has to come back, which is of no use without access.
    onError(thrown) {
      const error = toAppError(thrown)
      if (error.status >= 500) return null
      return toText([{ type: 'error', errorText: textOf(error) }]) + frame('[DONE]')
    },
  })
}

const toText = (chunks: readonly Chunk[]): string => chunks.map((chunk) => frame(chunk)).join('')

async function* toFrames(context: Context, actor: Actor, { row, after, decisions }: Continued): AsyncGenerator<string> {
  const write = createChunkWriter()
  // The page has its own decisions, and version 6 of the SDK does not know the chunk.
  const isKnown = ({ type, approvalId, approved }: Chunk) =>
    type === 'tool-approval-response' &&
    decisions.some((one) => one.approvalId === approvalId && one.isApproved === approved)
  const done = frame('[DONE]')
  // A continued answer begins as the one that the page has.
  if (after) yield frame({ type: 'start', messageId: row.id })
  // Other calls of the step are not decided yet.
  if (after && row.waitingFor && row.seqReserved - 1 <= after) return yield `${frame({ type: 'finish' })}${done}`
  for await (const parts of followParts(context, actor, row)) {
    let isOver = false
    let text = ''
    for (const part of parts) {
      const written = write(part)
      // The page has the chunks before, and the writer continues from there.
      if (part.seq <= after) continue
      text += toText(written.chunks.filter((chunk) => !isKnown(chunk)))
      isOver ||= written.isOver
    }
    // All approvals of a step come together. The page answers once the stream has ended.
    const last = parts.at(-1)
    const isAsked = last?.type === 'approval' && last.seq > after && (await isWaitingForApproval(context.deps, row))
    if (isAsked) text += toText([{ type: 'finish-step' }, { type: 'finish', finishReason: 'tool-calls' }])
    yield isOver || isAsked ? `${text}${done}` : text
    if (isOver || isAsked) return
  }
}

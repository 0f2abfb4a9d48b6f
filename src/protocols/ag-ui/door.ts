import type { IncomingMessage, ServerResponse } from 'node:http'
import type { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { invalidField, textOf } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { RunAgentInput } from '../../http/door-schemas.ts'
import { parseExact } from '../../lib/exact-json.ts'
import { asObject, asText, type Fields, isObject } from '../../lib/unknown.ts'
import type { Context } from '../../trpc.ts'
import type { RouteMatch } from '../doors.ts'
import { findAgent } from '../shared/agents.ts'
import { type Decision, decideAll, isWaitingForApproval } from '../shared/approvals.ts'
import { type GivenFile, withNotes } from '../shared/attachments.ts'
import { clientOf, continueOrStart } from '../shared/begin.ts'
import { giveClientResults, noneWaits, type RunFrom } from '../shared/client-tools.ts'
import { enter, idempotencyOf, nameRun, readBody } from '../shared/enter.ts'
import { frame, reported, writeFrames } from '../shared/frames.ts'
import { checkQuestion } from '../shared/questions.ts'
import { followParts, type Part, toCallId } from '../shared/run-parts.ts'
import type { RunRequest } from '../shared/runs.ts'
import { readTools } from '../shared/tools.ts'
import { type ClientConversation, type ClientResult, createTurns, readArguments } from '../shared/turns.ts'
import { type AgUiEvent, type AgUiMessage, type AskedPart, createAgUiWriter } from './writer.ts'

type Input = z.output<typeof RunAgentInput>

/** POST /api/v1/agents/{id}/ag-ui: runs an agent for a client of AG-UI 1.0 (contract-2.md section 6.3). */
export async function handle(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  match: RouteMatch,
): Promise<void> {
  const actor = await enter(context, req, match)
  const { deps } = context
  const input = await readBody({ context, actor, req }, RunAgentInput)
  const { path, parameters } = match
  const agent = await findAgent(actor, deps, parameters[0] ?? '')
  const idempotency = idempotencyOf(req, path)
  const transcript = readMessages(input)
  const run = input.resume?.length
    ? await decideAll(actor, deps, input.resume.map(toDecision))
    : await continueOrStart(context, actor, {
        agent,
        results: transcript.results,
        idempotency,
        toRunRequest: () => toRunRequest(agent, path, input, transcript),
      })
  nameRun(res, run.row, idempotency)
  await writeFrames(res, toFrames(context, actor, { agent, input, results: transcript.results }, run), {
    // A connection that breaks off ends the whole program of HttpAgent, and says nothing to a person.
    onError: reported(context, (error) => frame({ type: 'RUN_ERROR', message: textOf(error), code: error.code })),
  })
}

function toDecision({ interruptId: approvalId, status, payload }: NonNullable<Input['resume']>[number]): Decision {
  if (status === 'cancelled') return { approvalId, isApproved: false }
  const { approved, reason, input } = isObject(payload) ? payload : {}
  if (typeof approved !== 'boolean') throw invalidField('resume.payload.approved', 'true or false')
  if (input !== undefined && input !== null && !isObject(input)) throw invalidField('resume.payload.input', 'object')
  return {
    approvalId,
    isApproved: approved,
    ...(typeof reason === 'string' && { reason }),
    ...(isObject(input) && { input }),
  }
}

/** Returns the run that an input asks for. Throws 400 for messages that no run can have. */
function toRunRequest(agent: CachedAgent, path: string, input: Input, transcript: ClientConversation): RunRequest {
  const { history, question, files, allResults: results } = transcript
  return {
    agent,
    protocol: 'ag-ui',
    path,
    body: input,
    history,
    results,
    files,
    name: input.threadId,
    message: checkQuestion(question, 'messages'),
    client: clientOf(transcript, readTools(input.tools?.map((tool) => ({ ...tool, type: 'function' })))),
  }
}

const ROLES: ReadonlySet<string> = new Set(['system', 'developer', 'user', 'assistant', 'tool'])

/** Reads the messages of an input as turns, and its context as instructions. */
function readMessages({ messages, context }: Input): ClientConversation {
  const turns = createTurns()
  // Activities and reasoning are for the page.
  for (const message of messages) if (ROLES.has(message.role)) addMessage(turns, message)
  for (const { description, value } of context ?? []) turns.instruct(`${description}: ${value}`)
  return turns.finish()
}

type Turns = ReturnType<typeof createTurns>

function addMessage(turns: Turns, { role, content: given, toolCallId, error, toolCalls }: Input['messages'][number]) {
  const content = contentOf(given)
  const text = withNotes(content)
  if (role === 'system' || role === 'developer') turns.instruct(text)
  else if (role === 'user') turns.ask(content.text, content.files)
  else if (role === 'tool') turns.result(asText(toolCallId), text, Boolean(error))
  else {
    if (text) turns.answer(text)
    for (const call of Array.isArray(toolCalls) ? toolCalls : []) addCall(turns, call)
  }
}

function addCall(turns: Turns, call: unknown): void {
  if (!isObject(call) || !isObject(call.function)) throw invalidField('messages', 'tool calls with a function')
  const { name, arguments: input } = call.function
  turns.call(asText(call.id), asText(name), readArguments(asText(input)))
}

function contentOf(given: Input['messages'][number]['content']): { text: string; files: GivenFile[] } {
  if (typeof given === 'string') return { text: given, files: [] }
  const files: GivenFile[] = []
  let text = ''
  if (given && !Array.isArray(given)) throw invalidField('messages', 'content as text or as a list of parts')
  for (const part of given ?? []) {
    if (part.type === 'text') text += asText(part.text)
    else files.push(fileOf(part))
  }
  return { text, files }
}

/** Reads a picture or a document that a message carries. Before version 1.0 it is of type `binary`. */
function fileOf({ type: kind, source, metadata, ...plain }: Fields): GivenFile {
  const binary = { type: plain.data ? 'data' : 'url', value: plain.data ?? plain.url, mimeType: plain.mimeType }
  const { type, value, mimeType } = kind === 'binary' ? binary : asObject(source)
  const { filename } = kind === 'binary' ? plain : asObject(metadata)
  const url = type === 'data' ? `data:${asText(mimeType)};base64,${asText(value)}` : asText(value)
  return { url, ...(typeof filename === 'string' && { name: filename }) }
}

async function* toFrames(
  context: Context,
  actor: Actor,
  { agent, input, results }: { agent: CachedAgent; input: Input; results: ClientResult[] },
  { row, after }: RunFrom,
): AsyncGenerator<string> {
  const { deps } = context
  const toText = (events: readonly AgUiEvent[]) => events.map((event) => frame(event)).join('')
  const writer = createAgUiWriter({ ...input, messages: input.messages as AgUiMessage[] }, row.id)
  yield toText([writer.begin()])
  // Other calls of the step are not decided yet: their questions came in an earlier stream.
  if (after && row.waitingFor === 'approval' && row.seqReserved - 1 <= after) {
    return yield toText(writer.interrupt(await undecidedOf(deps, row)))
  }
  // A client may have made its own calls of a step while a person decided the others.
  const made = new Set(results.map(({ id }) => id))
  const isMade = (part: Part) => part.type === 'client-tools' && part.calls.every(({ id }) => made.has(id))
  for await (const all of followParts(context, actor, row, after)) {
    if (all.some(isMade) && !(await giveClientResults(actor, deps, agent, results))) throw noneWaits()
    // The client has its own results, which it would show twice.
    const parts = all.filter((part) => !isMade(part) && !(part.type === 'tool-result' && made.has(part.id)))
    const written = parts.map(writer.write)
    const events = written.flatMap((one) => one.events)
    const isOver = written.some((one) => one.isOver)
    const isAsked = parts.at(-1)?.type === 'approval' && (await isWaitingForApproval(deps, row))
    yield toText(isAsked ? [...events, ...writer.interrupt()] : events)
    if (isOver || isAsked) return
  }
}

/** Returns the questions of a waiting run that are not decided. */
async function undecidedOf({ db }: Pick<Deps, 'db'>, { id: executionId }: ExecutionRow): Promise<AskedPart[]> {
  const pending = await db.approval.findMany({
    where: { executionId, status: 'pending' },
    select: { id: true, step: true, position: true, tool: true, input: true },
    orderBy: { position: 'asc' },
  })
  return pending.map(({ id: approvalId, step, position, tool: name, input }) => {
    return { type: 'approval', approvalId, id: toCallId(executionId, step, position), name, input: parseExact(input) }
  })
}

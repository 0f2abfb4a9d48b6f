import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import { type Actor, isAdmin, permit } from '../../auth/actor.ts'
import { audit } from '../../auth/audit.ts'
import type { Prisma } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { AppError, badRequest, cancelled, chatFailed, invalidField, notFound } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Overrides } from '../../executions/engine/queue/accept.ts'
import { cancel, cancelIfActive, find } from '../../executions/service.ts'
import { sendJson } from '../../http/body.ts'
import { asList, asText } from '../../lib/unknown.ts'
import type { Context } from '../../trpc.ts'
import type { ErrorCode } from '../../wire.ts'
import { findAgent } from '../shared/agents.ts'
import { clientOf, continueOrStart } from '../shared/begin.ts'
import type { Manner } from '../shared/client-tools.ts'
import { idempotencyOf, nameRun, readBody } from '../shared/enter.ts'
import { frame, reported, writeFrames } from '../shared/frames.ts'
import { checkQuestion, withQuestion } from '../shared/questions.ts'
import { readParts } from '../shared/run-parts.ts'
import { type Asked, findSessionId } from '../shared/runs.ts'
import { qualified, readTools } from '../shared/tools.ts'
import { type ClientConversation, createTurns, readArguments } from '../shared/turns.ts'
import { answerWhole } from '../shared/unanswered.ts'
import { Content, contentOf, textOf } from './content.ts'
import type { Asking } from './door.ts'
import { previousNotFound, toErrorEvent, toOpenAIError } from './errors.ts'
import { type Item, isOwn } from './items.ts'
import { checkName, conversationName } from './names.ts'
import {
  type Echo,
  echoOf,
  type ResponseRef,
  readConversationId,
  readResponseId,
  type toResponse,
  toResponseId,
} from './response.ts'
import { followResponse, type ResponseEvent, readResponse } from './response-stream.ts'
import { allowedBy, demandOf, outputOf, readSettings, refuseLogprobs, SETTINGS } from './settings.ts'

const PATH = '/openai/v1/responses'

const item = z.looseObject({ type: z.string().nullish(), role: z.string().nullish(), content: Content })

const Request = z.object({
  model: z.string().max(300),
  input: z.union([z.string(), z.array(item)]),
  instructions: z.string().max(100_000).nullish(),
  previous_response_id: z.string().max(200).nullish(),
  conversation: z.union([z.string(), z.object({ id: z.string() })]).nullish(),
  tools: z.array(z.unknown()).nullish(),
  stream: z.boolean().nullish(),
  background: z.boolean().nullish(),
  metadata: z.record(z.string().max(64), z.string().max(512)).nullish(),
  max_output_tokens: z.number().nullish(),
  reasoning: z.object({ effort: z.string().nullish() }).nullish(),
  text: z.object({ format: z.record(z.string(), z.unknown()).nullish() }).nullish(),
  include: z.unknown().optional(),
  ...SETTINGS,
})
type Request = z.output<typeof Request>

/** POST /openai/v1/responses (contract-2.md section 6.2). Throws the errors of `startRun`. */
export async function createResponse({ context, actor, req, res }: Asking): Promise<void> {
  const body = await readBody({ context, actor, req }, Request)
  const { deps } = context
  const agent = await findAgent(actor, deps, body.model)
  const given = readInput(body)
  const transcript = isContinued(body) ? given : withQuestion(given)
  const idempotency = idempotencyOf(req, PATH)
  const manner = mannerOf(body, transcript)
  const asked = () => askedBy(actor, deps, req, agent, body, transcript, manner)
  const { results } = transcript
  const isWhole = !body.stream && !body.background
  const isConversation = transcript.question !== null
  // A request with the whole conversation has all tools of the client: without any, the run goes on without them.
  const rest = isContinued(body) ? manner : { clientTools: [], ...manner }
  const request = { agent, results, manner: rest, isConversation, idempotency, asked, isWhole }
  const ref = await continueOrStart(context, actor, request)
  nameRun(res, ref.row, idempotency)
  if (body.stream) return streamResponse({ context, actor, req, res }, ref, 0)
  const ended = await answerWhole(context, actor, ref, async () => {
    if (!body.background) await waitFor(context, actor, ref)
    return find(actor, deps, ref.row.id)
  })
  if (!ended) return
  const { response, state } = await readResponse(deps, { row: ended, after: ref.after })
  if (!body.background && state?.error) {
    if (ended.status === 'cancelled') throw cancelled(ended.id)
    const code = state.error.code as ErrorCode
    throw chatFailed({ code, detail: ended.error ?? state.error.message, executionId: ended.id })
  }
  sendResponse(req, res, response)
}

/**
 * Returns whether a client refuses items of types that it does not know: the AI SDK, and libraries for PHP, Rust, Java
 * and Swift. Those send the name of the HTTP library below them, or none.
 */
const isStrict = ({ headers }: IncomingMessage): boolean =>
  /^$|\bai-sdk\b|^(GuzzleHttp|Symfony|Java-http-client|okhttp)\b|\bCFNetwork\b/.test(headers['user-agent'] ?? '')

type Sent = ReturnType<typeof toResponse>

/** Leaves the service's own items out of a response. */
const withoutOwn = (response: Sent): Sent => ({ ...response, output: response.output.filter((item) => !isOwn(item)) })

/** Sends a response, without the service's own items if its client refuses them. */
function sendResponse(req: IncomingMessage, res: ServerResponse, response: Sent): void {
  sendJson(res, 200, isStrict(req) ? withoutOwn(response) : response)
}

/** Creates a function that leaves the service's own items out of the events of a response, from its first one on. */
function createFilter() {
  const hidden: number[] = []
  return (event: ResponseEvent): ResponseEvent[] => {
    const { item, output_index: index, response } = event
    if (response) return [{ ...event, response: withoutOwn(response as Sent) }]
    if (typeof index !== 'number') return [event]
    if (item && isOwn(item as Item)) {
      if (event.type === 'response.output_item.added') hidden.push(index)
      return []
    }
    return [{ ...event, output_index: index - hidden.filter((before) => before < index).length }]
  }
}

/** Waits until a response has ended, or its caller has gone. */
async function waitFor({ deps, streamTo }: Context, actor: Actor, ref: ResponseRef): Promise<void> {
  for await (const _ of followResponse(actor, deps, ref, streamTo));
}

/** Returns the texts, tools and settings of a request. Throws 400 for settings that no run can have. */
function mannerOf(body: Request, transcript: ClientConversation): Manner {
  const items = typeof body.input === 'string' ? [] : body.input
  const others = items.flatMap(({ type, tools }) => (type === 'additional_tools' ? asList(tools) : []))
  const { tools, choice } = allowedBy(body.tool_choice, readTools(body.tools, others))
  const modelSettings = readSettings({
    ...body,
    tool_choice: choice,
    maxTokens: body.max_output_tokens,
    effort: body.reasoning?.effort,
  })
  refuseLogprobs({ include: asList(body.include).includes('message.output_text.logprobs') })
  return {
    ...clientOf(transcript, tools),
    ...demandOf(choice, tools),
    ...(modelSettings && { modelSettings }),
    ...outputOf(body.text?.format),
  }
}

/**
 * Returns the run that a request asks for. Throws 400 for messages that no run can have, and 404 for what it continues.
 */
async function askedBy(
  actor: Actor,
  deps: Deps,
  req: IncomingMessage,
  agent: CachedAgent,
  body: Request,
  transcript: ClientConversation,
  manner: Manner,
): Promise<Asked> {
  const previousResponseId = body.previous_response_id ?? null
  const conversation = typeof body.conversation === 'object' ? body.conversation?.id : body.conversation
  if (previousResponseId !== null && conversation) {
    const detail = 'Name the conversation, or the response before this one.'
    throw badRequest('Invalid value for field: conversation. Expected none beside previous_response_id', { detail })
  }
  const behind = previousResponseId === null ? null : await findPrevious(actor, deps, previousResponseId, agent)
  const sessionId = conversation ? await findSessionId(actor, deps, agent, readConversationId(conversation)) : null
  const name = conversation ? checkName(conversation, 'conversation') : conversationName(req)
  const echo: Echo = {
    model: body.model,
    metadata: body.metadata ?? {},
    previousResponseId,
    background: body.background === true,
  }
  const question = isContinued(body) ? questionsOf(transcript) : transcript.question
  return {
    agent,
    protocol: 'openai',
    path: PATH,
    body,
    sessionId,
    behind,
    results: transcript.allResults,
    files: transcript.files,
    message: checkQuestion(question, 'input'),
    name: sessionId === null && !behind ? name : null,
    history: isContinued(body) ? null : transcript.history,
    options: { ...(body.background && { background: true }) },
    client: { ...manner, echo },
  }
}

/** Returns whether a request has its new messages alone, because it continues a conversation of the service. */
const isContinued = ({ previous_response_id: id, conversation }: Request): boolean =>
  (id ?? null) !== null || Boolean(typeof conversation === 'object' ? conversation?.id : conversation)

/** Returns all new messages of the user as one. */
function questionsOf({ history, question }: ClientConversation): string | null {
  const all = [...history.map(({ message }) => message), question].filter((text) => text !== null)
  return all.length ? all.join('\n\n') : null
}

/** Reads the input of a request as turns. */
function readInput({ input, instructions }: Request): ClientConversation {
  const turns = createTurns()
  if (instructions) turns.instruct(instructions)
  if (typeof input === 'string') turns.ask(input)
  for (const item of typeof input === 'string' ? [] : input) {
    if (item.type === 'function_call') {
      const name = qualified(asText(item.name), item.namespace)
      turns.call(asText(item.call_id), name, readArguments(asText(item.arguments)))
    } else if (item.type === 'custom_tool_call') {
      const name = qualified(asText(item.name), item.namespace)
      turns.call(asText(item.call_id), name, { input: asText(item.input) })
    } else if (item.type === 'function_call_output' || item.type === 'custom_tool_call_output') {
      // Items that a run does not read have other outputs.
      const { data: output, success } = Content.safeParse(item.output)
      if (!success) throw invalidField('input', 'outputs of functions as string or array')
      turns.result(asText(item.call_id), textOf(output))
    } else if (item.role) addMessage(turns, item.role, item.content)
    // Reasoning, references and the service's own items say nothing that a run reads.
  }
  turns.askInstruction()
  return turns.finish()
}

function addMessage(turns: ReturnType<typeof createTurns>, role: string, content: Content): void {
  if (role === 'user') {
    const { text, files } = contentOf(content)
    turns.ask(text, files)
    return
  }
  const text = textOf(content)
  if (role === 'assistant') turns.answer(text)
  else if (role === 'system' || role === 'developer') turns.instruct(text)
  else throw invalidField('input', 'roles user, assistant, system or developer')
}

/** Finds a response that the caller can read. Throws 404 for any other, and for a deleted one. */
async function findResponse(actor: Actor, deps: Deps, id: string): Promise<ResponseRef> {
  const read = readResponseId(id)
  const row = read && (await find(actor, deps, read.executionId))
  if (!row || echoOf(row).isDeleted) throw notFound('Execution')
  return { row, after: read.after }
}

/** Returns the run of the response that a request to an agent continues. Throws 404 if there is none. */
async function findPrevious(actor: Actor, deps: Deps, id: string, agent: CachedAgent): Promise<ExecutionRow> {
  const { row } = await findResponse(actor, deps, id).catch((error) => {
    throw error instanceof AppError && error.status === 404 ? previousNotFound() : error
  })
  // Its chat may be deleted.
  const isThere = row.agentId === agent.id && (await findSessionId(actor, deps, agent, row.sessionId))
  if (!isThere) throw previousNotFound()
  return row
}

/** GET /openai/v1/responses/{id}, with `stream=true` as events, those after `starting_after` if it is given. */
export async function getResponse({ context, actor, req, res, id }: Asking): Promise<void> {
  const { searchParams } = new URL(req.url ?? '/', 'http://localhost')
  const ref = await findResponse(actor, context.deps, id)
  if (searchParams.get('stream') !== 'true') {
    const { response } = await readResponse(context.deps, ref)
    return sendResponse(req, res, response)
  }
  const after = searchParams.get('starting_after') ?? '0'
  if (!/^\d{1,15}$/.test(after)) {
    throw badRequest('Invalid value for parameter: starting_after. Expected a sequence_number', {
      detail: 'Send the `sequence_number` of the last event that you have.',
    })
  }
  await streamResponse({ context, actor, req, res }, ref, Number(after))
}

/** POST /openai/v1/responses/{id}/cancel. Throws 400 for a response that has ended otherwise. */
export async function cancelResponse({ context, actor, req, res, id }: Asking): Promise<void> {
  const { deps } = context
  const { row, after } = await findResponse(actor, deps, id)
  await cancel(actor, deps, row.id, true)
  const { response } = await readResponse(deps, { row: await find(actor, deps, row.id), after })
  sendResponse(req, res, response)
}

/**
 * DELETE /openai/v1/responses/{id}: cancels its run if that is active. The response is not found from then on; the
 * execution and the chat stay.
 */
export async function deleteResponse({ context, actor, res, id }: Asking): Promise<void> {
  const { deps } = context
  const ref = await findResponse(actor, deps, id)
  const row = permit(ref.row, ref.row.userId === actor.userId || isAdmin(actor))
  await cancelIfActive(actor, deps, row.id)
  const overrides = { ...(ref.row.overrides as Overrides), echo: { ...echoOf(ref.row), isDeleted: true } }
  const data = { overrides: overrides as object as Prisma.InputJsonObject }
  await deps.db.$transaction(async (tx) => {
    await tx.execution.updateMany({ where: { id: row.id }, data })
    await audit(tx, actor, 'response.delete', row.id, deps.clock.now())
  })
  sendJson(res, 200, { id: toResponseId(ref), object: 'response', deleted: true })
}

/** GET /openai/v1/responses/{id}/input_items: the message that the run answers, or the results that continued it. */
export async function listInput({ context, actor, res, id }: Asking): Promise<void> {
  const { row, after } = await findResponse(actor, context.deps, id)
  const asked = {
    id: `msg_${row.id}_input`,
    type: 'message',
    role: 'user',
    status: 'completed',
    content: [{ type: 'input_text', text: row.message }],
  }
  const data = after ? await resultsAfter(context.deps, row, after) : [asked]
  const [first_id = null, last_id = null] = [data[0]?.id, data.at(-1)?.id]
  sendJson(res, 200, { object: 'list', data, first_id, last_id, has_more: false })
}

/** Lists the results of the client's tools that came right after an event of a run. */
async function resultsAfter(deps: Deps, row: ExecutionRow, after: number) {
  const items: { id: string; type: string; call_id: string; output: string; status: string }[] = []
  const custom = new Set<string>()
  for await (const part of readParts(deps, row)) {
    if (part.type === 'tool-call' && part.isCustom) custom.add(part.id)
    if (part.seq <= after) continue
    if (part.type !== 'tool-result') return items
    const { id: call_id, content: output } = part
    const type = custom.has(call_id) ? 'custom_tool_call_output' : 'function_call_output'
    items.push({ id: `fco_${call_id}`, type, call_id, output, status: 'completed' })
  }
  return items
}

async function streamResponse(
  { context, actor, req, res }: Omit<Asking, 'id'>,
  ref: ResponseRef,
  after: number,
): Promise<void> {
  const { deps, streamTo } = context
  const filter = isStrict(req) ? createFilter() : null
  let last = after
  async function* toFrames(): AsyncGenerator<string> {
    for await (const events of followResponse(actor, deps, ref, streamTo)) {
      const shown = filter ? events.flatMap(filter) : events
      const later = shown.filter(({ sequence_number: number }) => number > after)
      last = later.at(-1)?.sequence_number ?? last
      yield later.map((event) => frame(event, event.type)).join('')
    }
    yield frame('[DONE]')
  }
  await writeFrames(res, toFrames(), {
    onError: reported(context, (error) => {
      const event = toErrorEvent(toOpenAIError(error).error)
      // OpenAI's library for .NET reads numbers of 32 bits.
      return frame({ ...event, sequence_number: last + 1 }, 'error')
    }),
  })
}

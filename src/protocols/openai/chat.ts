import type { IncomingMessage } from 'node:http'
import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { invalidField } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { cancelIfActive } from '../../executions/service.ts'
import { sendJson } from '../../http/body.ts'
import { asText } from '../../lib/unknown.ts'
import { findAgent } from '../shared/agents.ts'
import { type Begun, type ClientRequest, clientOf, continueOrStart } from '../shared/begin.ts'
import { type ClientOverrides, giveClientResults, noneWaits } from '../shared/client-tools.ts'
import { idempotencyOf, nameRun, readBody } from '../shared/enter.ts'
import { frame, reported, writeFrames } from '../shared/frames.ts'
import { checkQuestion, withQuestion } from '../shared/questions.ts'
import { readCallId } from '../shared/run-parts.ts'
import type { RunRequest } from '../shared/runs.ts'
import { type ClientConversation, createTurns, readArguments } from '../shared/turns.ts'
import { answerWhole } from '../shared/unanswered.ts'
import { type Head, type Run, toChunks, toCompletion, toCompletionId, waitForCalls } from './completion.ts'
import { Content, contentOf, textOf } from './content.ts'
import type { OpenAIRequest } from './door.ts'
import { toOpenAIError } from './errors.ts'
import { createCalls, FUNCTIONS, findRun, type GivenTools, readEitherTools } from './functions.ts'
import { conversationName } from './names.ts'
import { outcomeWithinLimit } from './own-limit.ts'
import { demandOf, outputOf, readSettings, SETTINGS } from './settings.ts'

const PATH = '/openai/v1/chat/completions'

/**
 * A call in a client's history: of a function, or of a tool with free text. Some clients send arguments as an object.
 */
const called = z.object({ name: z.string(), arguments: z.unknown().optional(), input: z.unknown().optional() })

const message = z.object({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool', 'function']),
  content: Content,
  tool_calls: z
    .array(z.object({ id: z.string().nullish(), function: called.nullish(), custom: called.nullish() }))
    .nullish(),
  tool_call_id: z.string().nullish(),
  function_call: called.nullish(),
  name: z.unknown().optional(),
})

const Request = z.object({
  model: z.string().max(300),
  messages: z.array(message).min(1).max(5_000),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish() }).nullish(),
  tools: z.array(z.unknown()).nullish(),
  n: z.number().nullish(),
  stop: z.unknown().optional(),
  max_tokens: z.number().nullish(),
  max_completion_tokens: z.number().nullish(),
  reasoning_effort: z.string().nullish(),
  response_format: z.record(z.string(), z.unknown()).nullish(),
  ...SETTINGS,
  ...FUNCTIONS,
})
type Request = z.output<typeof Request>

/** POST /openai/v1/chat/completions (contract-2.md section 6.2). Throws the errors of `startRun`. */
export async function complete({ context, actor, req, res }: OpenAIRequest): Promise<void> {
  const body = await readBody({ context, actor, req }, Request)
  const { deps } = context
  if (body.n && body.n > 1) throw invalidField('n', '1', 'Send a request for each answer.')
  const agent = await findAgent(actor, deps, body.model)
  const { calls, ...given } = readMessages(body.messages)
  const transcript = withQuestion(given)
  const { results } = transcript
  const tools = readEitherTools(body)
  const overrides = overridesOf(body, transcript, tools)
  const idempotency = idempotencyOf(req, PATH)
  const isLegacy = tools.isLegacy || body.messages.at(-1)?.role === 'function'
  const isOurs = results.every(({ id }) => readCallId(id))
  const isConversation = transcript.question !== null
  // The request has all tools of the client: without any, the run goes on without them.
  const rest = { clientTools: [], ...overrides }
  const found = isOurs ? null : await continueWithoutIds(actor, deps, agent, { calls, overrides: rest })
  if (!isOurs && !found && !isConversation) throw noneWaits()
  const request: ClientRequest = {
    agent,
    results: isOurs ? results : [],
    listed: given.history.at(-1)?.toolCalls,
    overrides: rest,
    isConversation,
    idempotency,
    isWhole: !body.stream,
    toRunRequest: () => toRunRequest(req, { agent, body, transcript, overrides }),
  }
  const run: Run & Begun = found ?? (await continueOrStart(context, actor, request))
  nameRun(res, run.row, idempotency)
  const head: Head = {
    id: toCompletionId(run),
    created: Math.floor(run.row.createdAt.getTime() / 1000),
    model: body.model,
    isLegacy,
    withUsage: body.stream_options?.include_usage === true,
  }
  if (body.stream) return stream({ context, actor, res }, run, head)
  const completion = await answerWhole(context, actor, run, async () => {
    const done = tools.tools.length || results.length ? await waitForCalls(context, actor, run) : null
    const row = done?.calls.length ? run.row : await outcomeWithinLimit(actor, context, run.row)
    return toCompletion(head, row, done, done?.reasoning ?? (await findReasoning(deps, row)))
  })
  if (completion) sendJson(res, 200, completion)
}

/** Returns the reasoning of an answer as its chat has it, or null if its model showed none. */
async function findReasoning({ db }: Deps, { sessionId, queueSeq }: ExecutionRow): Promise<string | null> {
  const where = { sessionId_position: { sessionId, position: 2 * queueSeq } }
  return (await db.message.findUnique({ where, select: { reasoning: true } }))?.reasoning ?? null
}

/** Returns the texts, tools and settings of a request. Throws 400 for settings that no run can have. */
function overridesOf(body: Request, transcript: ClientConversation, { tools, choice }: GivenTools): ClientOverrides {
  const modelSettings = readSettings({
    ...body,
    tool_choice: choice,
    maxTokens: body.max_completion_tokens ?? body.max_tokens,
    effort: body.reasoning_effort,
  })
  return {
    ...clientOf(transcript, tools),
    ...demandOf(choice, tools),
    ...(modelSettings && { modelSettings }),
    ...outputOf(body.response_format),
  }
}

/** The agent of a request, its body, and the parts read from it. */
type ParsedRequest = { agent: CachedAgent; body: Request; transcript: ClientConversation; overrides: ClientOverrides }

/** Returns the run that a request asks for. Throws 400 for messages that no run can have. */
function toRunRequest(req: IncomingMessage, { agent, body, transcript, overrides }: ParsedRequest): RunRequest {
  const { history, question, files, allResults: results } = transcript
  return {
    agent,
    protocol: 'openai',
    path: PATH,
    body,
    history,
    results,
    files,
    message: checkQuestion(question, 'messages'),
    name: conversationName(req),
    client: overrides,
  }
}

/** Reads the messages of a request as turns, and the calls since the last question. */
function readMessages(messages: Request['messages']) {
  const turns = createTurns()
  const calls = createCalls()
  for (const message of messages) {
    const { role, content } = message
    if (role === 'user') {
      const { text, files } = contentOf(content)
      turns.ask(text, files)
      calls.ask(text)
    } else if (role === 'system' || role === 'developer') turns.instruct(textOf(content))
    else if (role === 'assistant') readAnswer(message, turns, calls)
    else {
      const text = textOf(content)
      turns.result(calls.result(message.name, text, message.tool_call_id), text)
    }
  }
  turns.askInstruction()
  return { ...turns.finish(), calls: calls.finish() }
}

/** Reads the text and the calls of an answer. */
function readAnswer(
  { content, tool_calls: made, function_call: one }: Request['messages'][number],
  turns: ReturnType<typeof createTurns>,
  calls: ReturnType<typeof createCalls>,
): void {
  const text = textOf(content)
  if (text || !(made?.length || one)) turns.answer(text)
  for (const { id, function: call, custom } of made ?? []) {
    const { name = '' } = call ?? custom ?? {}
    const input = custom ? { input: asText(custom.input) } : readArguments(call?.arguments)
    turns.call(calls.call(name, input, id), name, input)
  }
  if (!one) return
  const input = readArguments(one.arguments)
  turns.call(calls.call(one.name, input), one.name, input)
}

/**
 * Continues a run with results without its ids, or answers with a call that the client has yet to make. Returns null if
 * no run has made the calls.
 */
async function continueWithoutIds(
  actor: Actor,
  deps: Deps,
  agent: CachedAgent,
  { calls, overrides }: { calls: Parameters<typeof findRun>[3]; overrides: ClientOverrides },
): Promise<Run | null> {
  const found = await findRun(actor, deps, agent, calls)
  if (!found) return null
  const { row, results, next } = found
  return next ? { row, after: 0, next } : giveClientResults(actor, deps, agent, results, overrides)
}

/** Streams a run as chunks. */
async function stream(
  { context, actor, res }: Pick<OpenAIRequest, 'context' | 'actor' | 'res'>,
  run: Run,
  head: Head,
): Promise<void> {
  await writeFrames(res, toChunks(context, actor, run, head), {
    onError: reported(context, (error) => frame(toOpenAIError(error))),
  })
  const isToCancel = new URL(res.req.url ?? '/', 'http://localhost').searchParams.get('onDisconnect') === 'cancel'
  if (isToCancel && !res.writableFinished) await cancelIfActive(actor, context.deps, run.row.id)
}

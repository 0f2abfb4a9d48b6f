import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import { badRequest, toAppError } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { ClientTool } from '../../executions/engine/queue/accept.ts'
import { outcomeOf } from '../../executions/execute.ts'
import { cancel } from '../../executions/service.ts'
import { sendJson } from '../../http/body.ts'
import type { Fields } from '../../lib/unknown.ts'
import type { Context } from '../../trpc.ts'
import { findAgent } from '../shared/agents.ts'
import { giveClientResults } from '../shared/client-tools.ts'
import { idempotencyOf, readBody } from '../shared/enter.ts'
import { frame, writeFrames } from '../shared/frames.ts'
import { checkQuestion } from '../shared/questions.ts'
import { type ClientCall, followParts, type Part } from '../shared/run-parts.ts'
import { type Asked, startRun } from '../shared/runs.ts'
import { readTools } from '../shared/tools.ts'
import { type ClientConversation, createTurns } from '../shared/turns.ts'
import { Content, contentOf, textOf } from './content.ts'
import type { Asking } from './door.ts'
import { toOpenAIError } from './errors.ts'
import { conversationName } from './names.ts'
import { demandOf, outputOf, readSettings, SETTINGS } from './settings.ts'

const PATH = '/openai/v1/chat/completions'

const message = z.object({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool', 'function']),
  content: Content,
  tool_calls: z
    .array(z.object({ id: z.string(), function: z.object({ name: z.string(), arguments: z.string().nullish() }) }))
    .nullish(),
  tool_call_id: z.string().nullish(),
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
})
type Request = z.output<typeof Request>

/** POST /openai/v1/chat/completions (contract-2.md section 6.2). Throws the errors of `startRun`. */
export async function complete({ context, actor, req, res }: Asking): Promise<void> {
  const body = await readBody(req, Request)
  const { deps } = context
  if (body.n && body.n > 1) throw badRequest('Invalid value for field: n. Expected 1')
  const agent = await findAgent(actor, deps, body.model)
  const transcript = readMessages(body.messages)
  const tools = readTools(body.tools)
  const idempotency = idempotencyOf(req, PATH)
  const isContinued = transcript.results.length > 0
  // Results continue a run that was counted.
  if (!isContinued) await context.countRun?.(actor)
  const run = isContinued
    ? await giveClientResults(actor, deps, agent, transcript.results)
    : {
        row: await startRun(actor, deps, askedBy(req, agent, body, transcript, tools), {
          idempotency,
          onAccepted: null,
        }),
        after: 0,
      }
  res.setHeader('X-Execution-Id', run.row.id)
  if (idempotency?.replayed) res.setHeader('Idempotent-Replayed', 'true')
  const head: Head = {
    id: `chatcmpl-${run.row.id}`,
    created: Math.floor(run.row.createdAt.getTime() / 1000),
    model: body.model,
  }
  if (body.stream) return stream(context, actor, res, run, head, body)
  const done = tools.length || isContinued ? await waitForCalls(context, actor, run) : null
  const row = done?.calls.length ? done.row : await outcomeOf(actor, deps, run.row, context)
  if (context.gone().aborted) return
  sendJson(res, 200, toCompletion(head, row, done))
}

/** Returns the run that a request asks for. Throws 400 for settings and messages that no run can have. */
function askedBy(
  req: IncomingMessage,
  agent: CachedAgent,
  body: Request,
  transcript: ClientConversation,
  clientTools: ClientTool[],
): Asked {
  const { instructions, history, question, files } = transcript
  const modelSettings = readSettings({
    ...body,
    maxTokens: body.max_completion_tokens ?? body.max_tokens,
    effort: body.reasoning_effort,
  })
  return {
    agent,
    protocol: 'openai',
    path: PATH,
    body,
    history,
    files,
    message: checkQuestion(question, 'messages'),
    name: conversationName(req),
    options: { ...(modelSettings && { modelSettings }), ...outputOf(body.response_format) },
    client: {
      ...(instructions !== undefined && { instructions }),
      ...(clientTools.length && { clientTools }),
      ...demandOf(body.tool_choice, clientTools),
    },
  }
}

/** Reads the messages of a request as turns. */
function readMessages(messages: Request['messages']): ClientConversation {
  const turns = createTurns()
  for (const { role, content: given, tool_calls: calls, tool_call_id: callId } of messages) {
    if (role === 'user') {
      const { text, files } = contentOf(given, 'messages')
      turns.ask(text, files)
      continue
    }
    const text = textOf(given, 'messages')
    if (role === 'system' || role === 'developer') turns.instruct(text)
    else if (role === 'assistant') {
      if (text || !calls?.length) turns.answer(text)
      for (const call of calls ?? []) turns.call(call.id, call.function.name, parsed(call.function.arguments))
    } else turns.result(callId ?? '', text)
  }
  return turns.finish()
}

/** Parses the arguments of a call in a client's history, which may be cut off. */
function parsed(text: string | null | undefined): unknown {
  try {
    return JSON.parse(text || '{}')
  } catch {
    return { text }
  }
}

type Head = { id: string; created: number; model: string }
/** A run, and the number of the event after which it is of this answer. */
type Run = { row: ExecutionRow; after: number }

const FINISH: Readonly<Record<string, string>> = {
  max_tokens: 'length',
  max_turns: 'length',
  budget: 'length',
  content_filter: 'content_filter',
  refusal: 'content_filter',
}

const finishOf = (stopReason: string | null): string => FINISH[stopReason ?? ''] ?? 'stop'

const usageOf = (row: Pick<ExecutionRow, 'inputTokens' | 'outputTokens'>) => ({
  prompt_tokens: row.inputTokens,
  completion_tokens: row.outputTokens,
  total_tokens: row.inputTokens + row.outputTokens,
})

const toCalls = (calls: readonly ClientCall[]) =>
  calls.map(({ id, name, input }) => ({
    id,
    type: 'function',
    function: { name, arguments: JSON.stringify(input) },
  }))

function toCompletion(head: Head, row: ExecutionRow, waiting: Waiting | null) {
  const calls = waiting?.calls ?? []
  const message = {
    role: 'assistant',
    content: calls.length ? waiting?.text || null : (row.result ?? ''),
    refusal: null,
    ...(calls.length && { tool_calls: toCalls(calls) }),
  }
  const finish = calls.length ? 'tool_calls' : finishOf(row.stopReason)
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: finish }],
    usage: usageOf(row),
  }
}

/** The calls that a run waits for the client to make, with the text of their step. None if the run has ended. */
type Waiting = { row: ExecutionRow; calls: readonly ClientCall[]; text: string }

/** Follows a run until it ends, or waits for the client to call tools. */
async function waitForCalls({ deps, streamTo }: Context, actor: Actor, { row, after }: Run): Promise<Waiting> {
  let text = ''
  for await (const parts of followParts(actor, deps, row, streamTo, after)) {
    for (const part of parts) {
      if (part.type === 'step-start' || part.type === 'reset') text = ''
      if (part.type === 'text-delta') text += part.text
      if (part.type === 'client-tools') return { row: await reread(deps, row), calls: part.calls, text }
    }
  }
  return { row, calls: [], text: '' }
}

const reread = ({ db }: Deps, { id }: ExecutionRow) => db.execution.findUniqueOrThrow({ where: { id } })

/** Streams a run as chunks. */
async function stream(
  context: Context,
  actor: Actor,
  res: ServerResponse,
  run: Run,
  head: Head,
  body: Pick<Request, 'stream_options'>,
): Promise<void> {
  const withUsage = body.stream_options?.include_usage === true
  await writeFrames(res, toChunks(context, actor, run, head, withUsage), {
    onError: (error) => frame(toOpenAIError(toAppError(error))),
  })
  const isToCancel = new URL(res.req.url ?? '/', 'http://localhost').searchParams.get('onDisconnect') === 'cancel'
  // The run may have ended already.
  if (isToCancel && !res.writableFinished) await cancel(actor, context.deps, run.row.id).catch(() => {})
}

async function* toChunks(
  { deps, streamTo }: Context,
  actor: Actor,
  { row, after }: Run,
  head: Head,
  withUsage: boolean,
): AsyncGenerator<string> {
  const chunk = (choices: Fields[], usage?: object) =>
    frame({
      id: head.id,
      object: 'chat.completion.chunk',
      created: head.created,
      model: head.model,
      choices,
      ...(withUsage && { usage: usage ?? null }),
    })
  const delta = (fields: Fields, finish: string | null = null) =>
    chunk([{ index: 0, delta: fields, logprobs: null, finish_reason: finish }])
  const toDeltas = createTextReader()
  yield delta({ role: 'assistant', content: '' })
  for await (const parts of followParts(actor, deps, row, streamTo, after)) {
    let text = ''
    for (const part of parts) {
      const change = toDeltas(part)
      if (change) text += delta(change)
      if (part.type === 'failed' || part.type === 'cancelled') {
        const { message, code, detail } = part
        const full = detail ? `${message}: ${detail}` : message
        yield `${text}${frame({ error: { message: full, type: 'server_error', param: null, code } })}`
        return
      }
      if (part.type !== 'client-tools' && part.type !== 'completed') continue
      const isOver = part.type === 'completed'
      if (!isOver) text += delta({ tool_calls: toCalls(part.calls).map((call, index) => ({ index, ...call })) })
      text += delta({}, isOver ? finishOf(part.stopReason) : 'tool_calls')
      if (withUsage) text += chunk([], usageOf(isOver ? tokensOf(part.usage) : await reread(deps, row)))
      yield `${text}${frame('[DONE]')}`
      return
    }
    yield text
  }
}

const tokensOf = (usage: { input_tokens: number; output_tokens: number }) => ({
  inputTokens: usage.input_tokens,
  outputTokens: usage.output_tokens,
})

/**
 * Creates a function that converts parts to deltas. The texts of several steps are separated. If a server was restarted in
 * the middle of a step, the client already has its beginning: only what differs is sent.
 */
function createTextReader(): (part: Part) => Fields | null {
  let step = 0
  /** Parts of the step that were sent, and parts that a restarted step has to repeat. */
  let sent = ''
  let repeated = ''
  let isAfterText = false

  return (part) => {
    if (part.type === 'reset' && part.isShown) {
      repeated = sent
      sent = ''
    } else if (part.type === 'step-start' && part.step !== step) {
      step = part.step
      sent = ''
      repeated = ''
    }
    if (part.type === 'reasoning-delta') return { reasoning_content: part.text }
    if (part.type !== 'text-delta' || !part.text) return null
    const isFirst = sent === ''
    sent += part.text
    if (repeated.startsWith(sent)) return null
    if (repeated) {
      const content = sent.startsWith(repeated) ? sent.slice(repeated.length) : `\n\n${sent}`
      repeated = ''
      return { content }
    }
    const content = isFirst && isAfterText ? `\n\n${part.text}` : part.text
    isAfterText = true
    return { content }
  }
}

import { StringDecoder } from 'node:string_decoder'
import { InvalidResponseDataError, JSONParseError, type LanguageModelV4CallOptions } from '@ai-sdk/provider'
import { createParser, type EventSourceParser, type ParseError } from 'eventsource-parser'
import { newId } from '../../lib/id.ts'
import { asObject, asText, type Fields } from '../../lib/unknown.ts'
import { ModelError } from './model-errors.ts'
import { post } from './post.ts'
import type { Part, TextModel } from './text-model.ts'

/** Makes a request's body of a call: what the provider package knows best. */
type Prepare = (options: LanguageModelV4CallOptions) => Promise<{ body: object }>

/**
 * A model of an OpenAI-compatible server by `POST /chat/completions`. The provider package makes the request; its
 * stream costs three times as much as the whole rest of a run: four web streams and two schemas for each token. This one
 * reads the chunks as they come. Errors are those of the package, see {@link describeModelError}.
 */
export function chatCompletions(
  { provider, modelId }: Pick<TextModel, 'provider' | 'modelId'>,
  url: string,
  apiKey: string | undefined,
  prepare: Prepare,
): TextModel {
  const headers = {
    'content-type': 'application/json',
    ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }),
  }
  return {
    provider,
    modelId,
    async doStream(options) {
      const { body } = await prepare(options)
      const text = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } })
      const request = { url, headers, body: text, signal: options.abortSignal }
      return { stream: await post(request, createReader()) }
    },
  }
}

/** How long an event may be that is not whole yet (characters), and how many calls a reply may make. */
const MAX_EVENT = 16 * 1024 * 1024
const MAX_CALLS = 1_000

/** Makes parts of the bytes of a stream as they come; says when the reply is whole. */
function createReader() {
  const reply: Reply = { open: null, reason: undefined, refusal: false, usage: null, calls: [], isWhole: false }
  let decoder: StringDecoder | null = null
  let parser: EventSourceParser | null = null
  let into: Part[] = []
  let isBegun = false
  const config = {
    maxBufferSize: MAX_EVENT,
    onEvent: ({ data }: { data: string }) => readEvent(reply, data, into),
    onError: refuseLong,
  }

  return (bytes: Buffer | null, parts: Part[]): boolean => {
    if (!bytes) endReply(reply, parts)
    else {
      const before = parts.length
      into = parts
      const last = bytes.at(-1) ?? 0
      // A character may be cut in two.
      if (last > 0x7f) decoder ??= new StringDecoder()
      const text = decoder ? decoder.write(bytes) : bytes.toString()
      parser ??= createParser(config)
      // An event stream may begin with a byte order mark, which is no part of it.
      parser.feed(isBegun ? text : text.replace(/^\ufeff/, ''))
      isBegun ||= text !== ''
      // Most have come whole: what waits for the next is small.
      if (last === LF && text.endsWith('\n\n')) parser = decoder = null
      // Whatever comes says that the model is not silent.
      if (parts.length === before) parts.push({ type: 'raw', rawValue: null })
    }
    return reply.isWhole
  }
}

const LF = 10

/** Its other complaints (unknown fields, retry times) do not matter. */
function refuseLong({ type }: ParseError): void {
  if (type === 'max-buffer-size-exceeded') throw new ModelError('The model sent more than 16 MiB in one event')
}

type Fragment = { index?: number; id?: string; name: string; input: string; signature?: string }

const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

/** A chunk, of the form in which they come. What is left out of it, or null, says nothing. */
function parse(data: string): Fields {
  try {
    const chunk: unknown = JSON.parse(data)
    const { choices, error } = asObject(chunk)
    const { content, tool_calls: calls } = asObject(asObject(asList(choices)[0]).delta)
    const isWellFormed = Array.isArray(choices) && (typeof content === 'string' || isList(content)) && isList(calls)
    if (error || isWellFormed) return asObject(chunk)
    throw new TypeError('A chunk of another form')
  } catch (cause) {
    throw new JSONParseError({ text: data, cause })
  }
}

const isList = (value: unknown): boolean => value === undefined || value === null || Array.isArray(value)

/** What the chunks of a reply are put together in. */
type Reply = {
  open: 'text' | 'reasoning' | null
  reason: string | undefined
  refusal: boolean
  usage: Fields | null
  calls: Fragment[]
  isWhole: boolean
}

function turnTo(reply: Reply, kind: Reply['open'], parts: Part[]): void {
  const { open } = reply
  if (open === kind) return
  if (open) parts.push({ type: `${open}-end`, id: open })
  if (kind) parts.push({ type: `${kind}-start`, id: kind })
  reply.open = kind
}

function say(reply: Reply, kind: 'text' | 'reasoning', delta: string, parts: Part[]): void {
  if (!delta) return
  turnTo(reply, kind, parts)
  parts.push({ type: `${kind}-delta`, id: kind, delta })
}

/** Some servers send a list of parts where others send text. */
function sayContent(reply: Reply, content: unknown, parts: Part[]): void {
  if (typeof content === 'string') say(reply, 'text', content, parts)
  for (const part of asList(content).map(asObject)) {
    if (part.type === 'text') say(reply, 'text', asText(part.text), parts)
    if (part.type === 'thinking')
      for (const { text } of asList(part.thinking).map(asObject)) say(reply, 'reasoning', asText(text), parts)
  }
}

/** Of a call that comes in pieces, the first has its id and name; some servers give no index. */
function addCall({ calls }: Reply, delta: Fields, parts: Part[]): void {
  const { index, id } = delta
  const { name, arguments: input } = asObject(delta.function)
  const known = calls.find((call) => (typeof index === 'number' ? call.index === index : call.id === id && id))
  const call: Fragment = known ?? { name: '', input: '', ...(typeof index === 'number' && { index }) }
  if (!known && calls.push(call) > MAX_CALLS)
    throw new ModelError(`The model makes more than ${MAX_CALLS} calls at once`)
  call.id ??= asText(id) || newId()
  call.name ||= asText(name)
  // Some servers send the input itself, not its JSON.
  const text = typeof input === 'string' ? input : (JSON.stringify(input ?? undefined) ?? '')
  call.input += text
  if (text) parts.push({ type: 'tool-input-delta', id: call.id, delta: text })
  const signature = asText(asObject(asObject(delta.extra_content).google).thought_signature)
  if (signature) call.signature ??= signature
}

/** Makes parts of a chunk, or of what says that there are no more. */
function readEvent(reply: Reply, data: string, parts: Part[]): void {
  if (reply.isWhole) return
  if (data === '[DONE]') return void endReply(reply, parts)
  const chunk = parse(data)
  if (chunk.error) return void parts.push({ type: 'error', error: chunk.error })
  if (chunk.usage) {
    reply.usage = asObject(chunk.usage)
    parts.push({ type: 'usage', usage: usageOf(reply.usage) })
  }
  const choice = asObject(asList(chunk.choices)[0])
  reply.reason = asText(choice.finish_reason) || reply.reason
  const delta = asObject(choice.delta)
  say(reply, 'reasoning', asText(delta.reasoning_content) || asText(delta.reasoning), parts)
  sayContent(reply, delta.content, parts)
  if (delta.refusal) reply.refusal = true
  say(reply, 'text', asText(delta.refusal), parts)
  for (const call of asList(delta.tool_calls)) addCall(reply, asObject(call), parts)
}

/** Makes parts of what is left at the end. */
function endReply(reply: Reply, parts: Part[]): void {
  const { reason, refusal, usage, calls } = reply
  reply.isWhole = true
  turnTo(reply, null, parts)
  for (const { id = newId(), name, input, signature } of calls) {
    const signed = signature && { providerMetadata: { compatible: { thoughtSignature: signature } } }
    parts.push({ type: 'tool-call', toolCallId: id, toolName: name, input, ...signed })
  }
  if (reason === undefined) {
    const message = 'Response stream ended without a finish reason.'
    parts.push({ type: 'error', error: new InvalidResponseDataError({ data: undefined, message }) })
  }
  parts.push({
    type: 'finish',
    finishReason: { unified: finishOf(reason, refusal), raw: reason },
    usage: usageOf(usage),
  })
}

function finishOf(reason: string | undefined, refusal: boolean) {
  switch (reason) {
    case undefined:
      return 'error'
    case 'stop':
      return refusal ? 'content-filter' : 'stop'
    case 'length':
      return 'length'
    case 'content_filter':
      return 'content-filter'
    case 'function_call':
    case 'tool_calls':
      return 'tool-calls'
    default:
      return 'other'
  }
}

function usageOf(usage: Fields | null) {
  const number = (value: unknown) => (typeof value === 'number' ? value : undefined)
  const cached = number(asObject(usage?.prompt_tokens_details).cached_tokens)
  const reasoning = number(asObject(usage?.completion_tokens_details).reasoning_tokens)
  return {
    inputTokens: { total: number(usage?.prompt_tokens), noCache: undefined, cacheRead: cached, cacheWrite: undefined },
    outputTokens: { total: number(usage?.completion_tokens), text: undefined, reasoning },
  }
}

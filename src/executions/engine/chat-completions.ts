import { STATUS_CODES } from 'node:http'
import {
  APICallError,
  InvalidResponseDataError,
  JSONParseError,
  type LanguageModelV4CallOptions,
  type LanguageModelV4StreamPart,
} from '@ai-sdk/provider'
import { createParser } from 'eventsource-parser'
import { Agent, type Dispatcher, request } from 'undici'
import { newId } from '../../lib/id.ts'
import type { TextModel } from './models.ts'

/** Makes a request's body of a call: what the provider package knows best. */
type Prepare = (options: LanguageModelV4CallOptions) => Promise<{ body: object }>

/** How much of an error's body is read. */
const MAX_ERROR = 64 * 1024

// How long is too long is for the caller to say, who aborts.
const agent = new Agent({ headersTimeout: 0, bodyTimeout: 0 })

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
      const signal = options.abortSignal ?? null
      const response = await request(url, { method: 'POST', headers, body: text, signal, dispatcher: agent }).catch(
        (cause: Error) => {
          throw signal?.aborted ? signal.reason : failed(url, `Cannot connect to API: ${cause.message}`, cause)
        },
      )
      if (response.statusCode >= 300) throw await refused(url, response)
      return { stream: readStream(url, response.body, signal) }
    },
  }
}

const failed = (url: string, message: string, cause: unknown) =>
  new APICallError({ message, url, requestBodyValues: {}, cause, isRetryable: false })

async function refused(url: string, { statusCode, body }: Dispatcher.ResponseData): Promise<APICallError> {
  let responseBody = ''
  for await (const chunk of body.setEncoding('utf8') as AsyncIterable<string>) {
    responseBody += chunk
    if (responseBody.length > MAX_ERROR) break
  }
  const message = STATUS_CODES[statusCode] ?? ''
  return new APICallError({ message, url, requestBodyValues: {}, statusCode, responseBody, isRetryable: false })
}

async function* readStream(
  url: string,
  body: Dispatcher.ResponseData['body'],
  signal: AbortSignal | null,
): AsyncGenerator<LanguageModelV4StreamPart> {
  const reply = createReply()
  const chunks: string[] = []
  const parser = createParser({ onEvent: ({ data }) => data !== '[DONE]' && chunks.push(data) })
  const decoder = new TextDecoder()
  try {
    for await (const bytes of body as AsyncIterable<Buffer>) {
      parser.feed(decoder.decode(bytes, { stream: true }))
      let silent = true
      // One by one: what came before a chunk that cannot be read was said.
      for (const chunk of chunks.splice(0)) {
        reply.read(chunk)
        for (const part of reply.take()) {
          silent = false
          yield part
        }
      }
      // Whatever comes says that the model is not silent.
      if (silent) yield { type: 'raw', rawValue: null }
    }
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    throw APICallError.isInstance(error) || JSONParseError.isInstance(error)
      ? error
      : failed(url, 'Failed to process successful response', error)
  }
  yield* reply.end()
}

type Fragment = { index?: number; id?: string; name: string; input: string; signature?: string }
type Loose = { readonly [key: string]: unknown }

const asObject = (value: unknown): Loose => (typeof value === 'object' && value !== null ? (value as Loose) : {})
const asText = (value: unknown): string => (typeof value === 'string' ? value : '')
const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

/** A chunk, of the form in which they come. What is left out of it, or null, says nothing. */
function parse(data: string): Loose {
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

/** Puts the chunks of a reply together. */
function createReply() {
  let parts: LanguageModelV4StreamPart[] = []
  let open: 'text' | 'reasoning' | null = null
  let reason: string | undefined
  let refusal = false
  let usage: Loose | null = null
  const calls: Fragment[] = []

  function turnTo(kind: typeof open): void {
    if (open === kind) return
    if (open) parts.push({ type: `${open}-end`, id: open })
    if (kind) parts.push({ type: `${kind}-start`, id: kind })
    open = kind
  }

  function say(kind: 'text' | 'reasoning', delta: string): void {
    if (!delta) return
    turnTo(kind)
    parts.push({ type: `${kind}-delta`, id: kind, delta })
  }

  /** Some servers send a list of parts where others send text. */
  function sayContent(content: unknown): void {
    if (typeof content === 'string') say('text', content)
    for (const part of asList(content).map(asObject)) {
      if (part.type === 'text') say('text', asText(part.text))
      if (part.type === 'thinking')
        for (const { text } of asList(part.thinking).map(asObject)) say('reasoning', asText(text))
    }
  }

  /** Of a call that comes in pieces, the first has its id and name; some servers give no index. */
  function addCall(delta: Loose): void {
    const { index, id } = delta
    const { name, arguments: input } = asObject(delta.function)
    const known = calls.find((call) => (typeof index === 'number' ? call.index === index : call.id === id && id))
    const call: Fragment = known ?? { name: '', input: '', ...(typeof index === 'number' && { index }) }
    if (!known) calls.push(call)
    call.id ??= asText(id) || newId()
    call.name ||= asText(name)
    call.input += asText(input)
    const signature = asText(asObject(asObject(delta.extra_content).google).thought_signature)
    if (signature) call.signature ??= signature
  }

  return {
    /** One chunk. */
    read(data: string): void {
      const chunk = parse(data)
      if (chunk.error) return void parts.push({ type: 'error', error: chunk.error })
      if (chunk.usage) usage = asObject(chunk.usage)
      const choice = asObject(asList(chunk.choices)[0])
      reason = asText(choice.finish_reason) || reason
      const delta = asObject(choice.delta)
      say('reasoning', asText(delta.reasoning_content) || asText(delta.reasoning))
      sayContent(delta.content)
      if (delta.refusal) refusal = true
      say('text', asText(delta.refusal))
      for (const call of asList(delta.tool_calls)) addCall(asObject(call))
    },
    /** What has come since the last time. */
    take(): LanguageModelV4StreamPart[] {
      const taken = parts
      parts = []
      return taken
    },
    end(): LanguageModelV4StreamPart[] {
      turnTo(null)
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
      return parts
    },
  }
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

function usageOf(usage: Loose | null) {
  const number = (value: unknown) => (typeof value === 'number' ? value : undefined)
  const cached = number(asObject(usage?.prompt_tokens_details).cached_tokens)
  const reasoning = number(asObject(usage?.completion_tokens_details).reasoning_tokens)
  return {
    inputTokens: { total: number(usage?.prompt_tokens), noCache: undefined, cacheRead: cached, cacheWrite: undefined },
    outputTokens: { total: number(usage?.completion_tokens), text: undefined, reasoning },
  }
}

/** Text is one token, bytes are written unchanged (garbage, another protocol), a promise is awaited. */
type Piece = string | Uint8Array | Promise<unknown>

export type Reply = {
  /** A string is cut into words. */
  tokens?: string | readonly Piece[]
  toolCalls?: readonly { id: string; name: string; input: unknown }[]
  /** Sent on request (`stream_options.include_usage`). Null simulates a server without usage. */
  usage?: { input: number; output: number } | null
  /** Delay before each token of text (ms). */
  delay?: number
  /**
   * `finish`: a correct end. `hang`: silence in the middle of a chunk with an open connection, or before the headers if
   * nothing precedes it. `drop`: the connection is destroyed in the middle of a chunk. `cut`: a clean end of the
   * response without the finishing chunks.
   */
  end?: 'finish' | 'hang' | 'drop' | 'cut'
  /** An HTTP error instead of a stream; `body` replaces OpenAI's error body. */
  error?: { status: number; message?: string; code?: string; body?: string; headers?: Record<string, string> }
}

/** A chunk of any form. */
export const event = (data: unknown) => Buffer.from(`data: ${JSON.stringify(data)}\n\n`)
const envelope = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'test-model' }
const chunk = (delta: unknown, finish_reason: string | null = null) =>
  event({ ...envelope, choices: [{ index: 0, delta, finish_reason }] })

const usageChunk = ({ input, output }: { input: number; output: number }) => {
  const usage = { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
  return event({ ...envelope, choices: [], usage })
}

const words = (text: string): string[] => text.split(/(?<=\s)(?=\S)/)

function* toolCallChunks(calls: NonNullable<Reply['toolCalls']>): Generator<Buffer> {
  for (const [index, { id, name, input }] of calls.entries()) {
    const json = JSON.stringify(input)
    const middle = Math.ceil(json.length / 2)
    yield chunk({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] })
    yield chunk({ tool_calls: [{ index, function: { arguments: json.slice(0, middle) } }] })
    yield chunk({ tool_calls: [{ index, function: { arguments: json.slice(middle) } }] })
  }
}

/** Bytes to write, milliseconds to wait, or a promise to await. */
type Step = Uint8Array | number | Promise<unknown>

function encode(reply: Reply, withUsage: boolean): Step[] {
  const { tokens = [], toolCalls = [], end = 'finish' } = reply
  const pieces = typeof tokens === 'string' ? words(tokens) : tokens
  const count = pieces.filter((piece) => typeof piece === 'string').length
  const pause = reply.delay ? [reply.delay] : []
  const encoded: Step[] = pieces.flatMap((piece): Step[] =>
    typeof piece === 'string' ? [...pause, chunk({ content: piece })] : [piece],
  )
  if (count > 0) encoded.unshift(chunk({ role: 'assistant', content: '' }))
  encoded.push(...toolCallChunks(toolCalls))
  if (end === 'finish') {
    const usage = reply.usage === undefined ? { input: 10, output: count } : reply.usage
    encoded.push(chunk({}, toolCalls.length > 0 ? 'tool_calls' : 'stop'))
    if (usage && withUsage) encoded.push(usageChunk(usage))
    encoded.push(Buffer.from('data: [DONE]\n\n'))
  }
  const broken = end === 'hang' || end === 'drop'
  if (broken && encoded.length > 0) encoded.push(Buffer.from('data: {"id":"chatcmpl-1","ch'))
  const inOneWrite = encoded.every((piece) => piece instanceof Uint8Array)
  return inOneWrite ? [Buffer.concat(encoded as Uint8Array[])] : encoded
}

const encodings = { withUsage: new WeakMap<Reply, Step[]>(), withoutUsage: new WeakMap<Reply, Step[]>() }

/** The steps of a reply, encoded once for any number of uses. */
export function encoded(reply: Reply, withUsage: boolean): Step[] {
  const known = encodings[withUsage ? 'withUsage' : 'withoutUsage']
  const pieces = known.get(reply) ?? encode(reply, withUsage)
  known.set(reply, pieces)
  return pieces
}

/** The text of a reply as one answer, for requests without a stream. */
export function whole({ tokens = [], usage = { input: 10, output: tokens.length } }: Reply): object {
  const content = typeof tokens === 'string' ? tokens : tokens.filter((piece) => typeof piece === 'string').join('')
  const message = { role: 'assistant', content }
  const { input, output } = usage ?? { input: 0, output: 0 }
  return {
    ...envelope,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: 'stop' }],
    usage: { prompt_tokens: input, completion_tokens: output, total_tokens: input + output },
  }
}

/** Returns an output schema, and an answer that misses it in so many places that the error is long. */
export function misfit() {
  const names = ['a', 'b', 'c', 'd', 'e'].map((letter) => letter.repeat(280))
  const properties = Object.fromEntries(names.map((name) => [name, { type: 'number' }]))
  const answer = JSON.stringify(Object.fromEntries(names.map((name) => [name, 'text'])))
  return { output: { name: 'numbers', schema: { type: 'object', properties } }, answer }
}

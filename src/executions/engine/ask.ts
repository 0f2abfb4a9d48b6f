import type {
  LanguageModelV4Prompt,
  LanguageModelV4ToolCall,
  LanguageModelV4Usage,
  SharedV4ProviderMetadata,
} from '@ai-sdk/provider'
import { concat } from '../../lib/text.ts'
import { ModelError } from './model-errors.ts'
import type { RunInput, RunUsage, Say } from './run.ts'
import type { Reply, ReplyPart } from './steps.ts'
import { TimeoutError } from './stop.ts'
import type { Part, Parts } from './text-model.ts'

/**
 * One answer of the model: tells its text as it comes, returns all that it said. Adds what it used to `usage`. An answer
 * that fails, or of which nothing is heard for `idleTimeout`, stops the run, and with it the call. Throws why the run was
 * stopped: what the provider throws, {@link TimeoutError}, or the reason that somebody else had.
 */
export async function ask(
  input: RunInput,
  prompt: LanguageModelV4Prompt,
  step: number,
  usage: RunUsage,
  say: Say,
): Promise<Reply> {
  const { controller, idleTimeout } = input
  const { signal } = controller
  const draft: Draft = { pieces: [], half: '', length: 0, used: undefined, isFinished: false, isCut: false }
  const silent = () => controller.abort(new TimeoutError(`The model was silent for ${idleTimeout / 1000} s`))
  let watchdog = setTimeout(silent, idleTimeout)
  try {
    for await (const parts of await callModel(input, prompt)) {
      for (const part of parts) {
        signal.throwIfAborted()
        watchdog.refresh()
        const text = receive(draft, part)
        const said = text && say({ messageType: 'stream_event', step, delta: { type: 'text_delta', text } })
        // Most of what is said keeps nobody waiting. Where the database does, the model is not silent.
        if (!said) continue
        clearTimeout(watchdog)
        await said
        watchdog = setTimeout(silent, idleTimeout)
      }
      if (draft.length > MAX_LENGTH) throw new ModelError('The reply of the model is longer than 16 MiB')
    }
  } catch (error) {
    controller.abort(error)
    throw signal.reason
  } finally {
    count(usage, draft.used)
    // There may have been more.
    if (!draft.isFinished) usage.usageEstimated = true
    clearTimeout(watchdog)
  }
  return { parts: draft.pieces.map(({ part }) => part), isCut: draft.isCut }
}

/** What has come of a reply so far. */
type Draft = {
  pieces: Piece[]
  /** The first half of a character, whose other half is to come. */
  half: string
  /** Of all that it says, thinks and tells tools (characters). */
  length: number
  used: LanguageModelV4Usage | undefined
  isFinished: boolean
  isCut: boolean
}

/** Adds a part of a reply to what has come of it. Returns the text to tell now; throws where the reply failed. */
function receive(draft: Draft, part: Part): string {
  const { pieces } = draft
  switch (part.type) {
    case 'text-delta': {
      draft.length += part.delta.length
      const text = draft.half + (part.delta.includes('\0') ? part.delta.replaceAll('\0', '') : part.delta)
      draft.half = halfAtEnd(text)
      return add(pieces, 'text', part, (draft.half ? text.slice(0, -1) : text).toWellFormed())
    }
    case 'text-start':
      return add(pieces, 'text', part, '')
    case 'text-end': {
      const rest = draft.half.toWellFormed()
      draft.half = ''
      return end(pieces, 'text', part, rest)
    }
    case 'reasoning-delta':
      draft.length += part.delta.length
      add(pieces, 'reasoning', part, part.delta)
      break
    case 'reasoning-start':
      add(pieces, 'reasoning', part, '')
      break
    case 'reasoning-end':
      end(pieces, 'reasoning', part, '')
      break
    case 'tool-input-delta':
      draft.length += part.delta.length
      break
    case 'tool-call':
      pieces.push({ id: null, part: readCall(part, pieces) })
      break
    case 'usage':
      draft.used = part.usage
      break
    case 'finish':
      draft.isFinished = true
      draft.used = part.usage
      draft.isCut = CUT_OFF.has(part.finishReason.unified)
      if (BROKEN_OFF.has(part.finishReason.unified)) throw new ModelError('The model broke off its reply')
      break
    case 'error':
      throw part.error
  }
  return ''
}

/** How long a reply may be, what it thinks and tells tools included (characters). */
const MAX_LENGTH = 16 * 1024 * 1024

/** The first half of a character at the end of a text, mostly nothing: the second may come with what is said next. */
function halfAtEnd(text: string): string {
  const last = text.charCodeAt(text.length - 1)
  return last >= 0xd800 && last < 0xdc00 ? text.slice(-1) : ''
}

type TextPart = Extract<ReplyPart, { text: string }>
type Fragment = { id: string; providerMetadata?: SharedV4ProviderMetadata }

/** A part of a reply, by its id while there may be more of it. */
type Piece = { id: string | null; part: ReplyPart }

const find = (reply: readonly Piece[], type: TextPart['type'], id: string) =>
  reply.findLast((piece) => piece.id === id && piece.part.type === type)

/** Adds text to its piece, and returns it. */
function add(reply: Piece[], type: TextPart['type'], { id, providerMetadata }: Fragment, text: string): string {
  const known = find(reply, type, id)
  const part = (known?.part ?? { type, text: '' }) as TextPart
  if (!known) reply.push({ id, part })
  part.text = concat(part.text, text)
  if (providerMetadata) part.providerOptions = { ...part.providerOptions, ...providerMetadata }
  return text
}

function end(reply: Piece[], type: TextPart['type'], fragment: Fragment, text: string): string {
  add(reply, type, fragment, text)
  const piece = find(reply, type, fragment.id)
  if (piece) piece.id = null
  return text
}

/** A call, its id told apart from those before it. Some models refuse their own calls without their signature. */
function readCall(part: LanguageModelV4ToolCall, reply: readonly Piece[]): ReplyPart {
  const taken = new Set(reply.flatMap(({ part: other }) => (other.type === 'tool-call' ? other.toolCallId : [])))
  const given = clean(part.toolCallId) as string
  let toolCallId = given
  for (let count = taken.size + 1; !toolCallId || taken.has(toolCallId); count++) {
    toolCallId = `${given || 'call'}_${count}`
  }
  return {
    type: 'tool-call',
    toolCallId,
    toolName: clean(part.toolName) as string,
    input: readInput(part.input),
    ...(part.providerMetadata && { providerOptions: part.providerMetadata }),
  }
}

/** Deeper than this is no input of a tool, and would be too much for whoever writes it out again. */
const MAX_DEPTH = 64

/** The JSON of an input, the text itself where it is none. */
function readInput(input: string): unknown {
  try {
    return clean(JSON.parse(input || '{}'))
  } catch {
    return clean(input)
  }
}

/** Without what PostgreSQL stores in no text: NUL, and halves of surrogate pairs. Throws for what is too deep. */
function clean(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return value.replaceAll('\0', '').toWellFormed()
  if (typeof value !== 'object' || value === null) return value
  if (depth === MAX_DEPTH) throw new RangeError('Too deep')
  if (Array.isArray(value)) return value.map((item) => clean(item, depth + 1))
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [clean(key), clean(inner, depth + 1)]))
}

/** How a provider says that its reply is not whole, though its stream ended in order. */
const BROKEN_OFF: ReadonlySet<string> = new Set(['error', 'interrupted'])

/** How it says that there would have been more. */
const CUT_OFF: ReadonlySet<string> = new Set(['length', 'content-filter'])

async function callModel(input: RunInput, prompt: LanguageModelV4Prompt): Promise<Parts> {
  const { signal } = input.controller
  signal.throwIfAborted()
  const { stream } = await input.model.doStream({
    prompt,
    ...(input.tools.length && {
      tools: input.tools.map(({ name, description, inputSchema }) => ({
        type: 'function' as const,
        ...{ name, description, inputSchema },
      })),
    }),
    abortSignal: signal,
    // Hidden thinking and pings are no parts of their own, but a model that sends them is not silent.
    includeRawChunks: true,
    providerOptions: { offline: { agentName: input.agentName } },
  })
  return stream
}

/** As many tokens as the row of a run can hold. */
const MAX_TOKENS = 2 ** 31 - 1

const isCount = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) <= MAX_TOKENS

/** What the provider does not report as a number of tokens is 0, and said to be unknown (contract.md section 8). */
function count(usage: RunUsage, used: LanguageModelV4Usage | undefined): void {
  const reported = { inputTokens: used?.inputTokens.total, outputTokens: used?.outputTokens.total }
  for (const key of ['inputTokens', 'outputTokens'] as const) {
    const tokens = reported[key]
    const total = usage[key] + (isCount(tokens) ? tokens : 0)
    if (!isCount(tokens) || total > MAX_TOKENS) usage.usageEstimated = true
    usage[key] = Math.min(total, MAX_TOKENS)
  }
}

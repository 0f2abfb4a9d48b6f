import { camelCased } from '../../../lib/text.ts'
import { asEntries, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { isEmpty } from './call-inputs.ts'
import { refuseChat } from './other-apis.ts'
import type { Emit, ProviderEvents } from './provider-events.ts'
import { errorIn } from './reported-errors.ts'

/** Reads the chunks of Gemini's `streamGenerateContent`. Leaves out parts that are neither text nor calls. */
export function createGoogleEvents(emit: Emit): ProviderEvents {
  const calls = createCalls()
  let isBegun = false
  let isSettled = false

  function read(given: Fields): void {
    const error = errorIn(given)
    if (error) throw error
    refuseChat(given, 'GOOGLE_BASE_URL')
    const event = withApiNames(given)
    // Gateways wrap the chunk (Code Assist, Vertex).
    if (isObject(event.response)) {
      read(event.response)
      return
    }
    const usageMetadata = usageOf(event.usageMetadata)
    const { blockReason } = withApiNames(asObject(event.promptFeedback))
    const candidate = asEntries(event.candidates).find((one) => isObject(one) && Number(one.index ?? 0) === 0)
    if (!candidate && !usageMetadata && !blockReason) {
      if (Array.isArray(event.candidates)) isBegun = true
      emit({ type: 'ping' })
      return
    }
    isBegun = true
    // Older models send a finish reason with every chunk.
    const chunk = candidate ? { candidates: [candidateOf(asObject(candidate), calls)] } : {}
    emit({
      ...chunk,
      ...(usageMetadata && { usageMetadata }),
      ...(typeof blockReason === 'string' && { promptFeedback: { blockReason } }),
    })
    if (blockReason || withApiNames(asObject(candidate)).finishReason) isSettled = true
  }

  return {
    read,
    keepAlive: () => emit({ type: 'ping' }),
    done: () => emit({ type: 'ping' }),
    close() {
      const parts = calls.end()
      if (parts.length) emit({ candidates: [{ content: { role: 'model', parts } }] })
    },
    get isBegun() {
      return isBegun
    },
    get isSettled() {
      return isSettled
    },
    // Usage may follow the finish reason, so only the end of the stream is final.
    isWhole: false,
  }
}

/** Returns an object with the API's names of its fields. Some gateways answer with those of Python's library. */
function withApiNames(fields: Fields): Fields {
  const names = Object.keys(fields)
  if (!names.some((name) => name.includes('_'))) return fields
  return Object.fromEntries(names.map((name) => [camelCased(name), fields[name]]))
}

/**
 * Puts calls together that gateways divide into a name without an input and an input without a name. Drops calls that
 * repeat the id and the input of an earlier one.
 */
function createCalls() {
  const seen = new Map<unknown, string>()
  let held: Fields | null = null

  function end(): Fields[] {
    const parts = held ? [held] : []
    held = null
    return parts
  }

  function add(part: Fields): Fields[] {
    const before = asObject(held?.functionCall)
    const call = asObject(part.functionCall)
    const { id, name, args } = call
    const isSame = name ? name === before.name && id && id === before.id : args !== undefined
    const isRest = held !== null && isObject(part.functionCall) && isSame
    if (isRest) {
      const whole = { ...held, ...part, functionCall: { ...before, ...call, name: before.name } }
      held = null
      return [whole]
    }
    const first = end()
    const stated = `${name} ${args}`
    if (id && name && seen.get(id) === stated) return first
    if (id && name) seen.set(id, stated)
    if (!name || call.willContinue || call.partialArgs || !isEmpty(asText(args))) return [...first, part]
    held = part
    return first
  }

  return { add, end }
}

function candidateOf(given: Fields, calls: ReturnType<typeof createCalls>): Fields {
  const { content, finishReason } = withApiNames(given)
  const isReason = typeof finishReason === 'string' || typeof finishReason === 'number'
  const added = asEntries(asObject(asEntries(content)[0]).parts)
    .flatMap(partOf)
    .flatMap(calls.add)
  const parts = isReason && finishReason ? [...added, ...calls.end()] : added
  return {
    ...(parts.length && { content: { role: 'model', parts } }),
    ...(isReason && finishReason && { finishReason: String(finishReason) }),
  }
}

function partOf(value: unknown): Fields[] {
  const { text, thought, functionCall, inlineData, thoughtSignature } = withApiNames(asObject(value))
  const signature = typeof thoughtSignature === 'string' && { thoughtSignature }
  if (isObject(functionCall)) return [{ functionCall: withTextOfInput(functionCall), ...signature }]
  // Only the number of files counts, which are not read.
  if (isObject(inlineData)) return [{ inlineData: { mimeType: asText(inlineData.mimeType), data: '' } }]
  if (typeof text !== 'string') return signature ? [{ text: '', ...signature }] : []
  return [{ text, ...(thought === true && { thought }), ...signature }]
}

/** Passes the input of a call on as text, in which large numbers keep their digits. */
const withTextOfInput = ({ args, ...call }: Fields): Fields =>
  isObject(args) ? { ...call, args: JSON.stringify(args) } : { ...call, ...(args !== undefined && { args }) }

const COUNTS = [
  'promptTokenCount',
  'candidatesTokenCount',
  'totalTokenCount',
  'cachedContentTokenCount',
  'thoughtsTokenCount',
  'toolUsePromptTokenCount',
] as const

/** Returns the numeric counts. Output that is not reported is computed from the total. */
function usageOf(value: unknown): Fields | null {
  if (!isObject(value)) return null
  const fields = withApiNames(value)
  const counts: Record<string, number> = {}
  for (const name of COUNTS) {
    const count = typeof fields[name] === 'string' && asText(fields[name]) ? Number(fields[name]) : fields[name]
    if (typeof count === 'number' && Number.isFinite(count)) counts[name] = count
  }
  const { promptTokenCount: input, totalTokenCount: total, thoughtsTokenCount: thoughts = 0 } = counts
  if (counts.candidatesTokenCount === undefined && input !== undefined && total !== undefined) {
    counts.candidatesTokenCount = Math.max(0, total - input - thoughts)
  }
  return Object.keys(counts).length ? counts : null
}

import type { LanguageModelV4Message, LanguageModelV4Prompt, LanguageModelV4ToolResultPart } from '@ai-sdk/provider'
import { cut } from '../../../lib/text.ts'
import { isSummary } from './history.ts'

/** Size of a picture or a file in a prompt, in the bytes of text that cost as many tokens. */
const FILE_SIZE = 6_000
/** Size of a message without its content (bytes). */
const OVERHEAD = 16
/** Length below which a tool's result is not cut (characters). */
const MIN_RESULT = 500
const MARK = '\n[The rest of this result was left out: it is too long for the model]'

type Part = Exclude<LanguageModelV4Message['content'], string>[number]

function sizeOfPart(part: Part): number {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return Buffer.byteLength(part.text)
    case 'tool-call':
      return Buffer.byteLength(JSON.stringify(part.input) ?? '') + part.toolName.length
    case 'tool-result':
      return sizeOfResult(part)
    default:
      return FILE_SIZE
  }
}

function sizeOfResult({ output }: LanguageModelV4ToolResultPart): number {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return Buffer.byteLength(output.value)
    case 'content':
      return output.value.reduce(
        (sum, part) => sum + (part.type === 'text' ? Buffer.byteLength(part.text) : FILE_SIZE),
        0,
      )
    default:
      return Buffer.byteLength(JSON.stringify(output))
  }
}

const sizeOfMessage = ({ content }: LanguageModelV4Message): number =>
  OVERHEAD +
  (typeof content === 'string'
    ? Buffer.byteLength(content)
    : (content as readonly Part[]).reduce((sum, part) => sum + sizeOfPart(part), 0))

/** Measures a prompt (bytes of text; a file counts as 6,000). */
export const sizeOf = (prompt: readonly LanguageModelV4Message[]): number =>
  prompt.reduce((sum, message) => sum + sizeOfMessage(message), 0)

/**
 * Shortens a prompt to `maxSize` (bytes, as {@link sizeOf} measures). Removes the oldest whole turns before the message
 * at index `question`, so that calls keep their results, and a summary of earlier turns last. If that is not enough,
 * cuts the longest tool results after the question. Returns the prompt itself if it fits, and the shortest possible
 * prompt if none does.
 */
export function shorten(prompt: LanguageModelV4Prompt, question: number, maxSize: number): LanguageModelV4Prompt {
  let size = sizeOf(prompt)
  if (size <= maxSize) return prompt
  const first = prompt.findIndex(({ role }) => role !== 'system')
  const head = isSummary(prompt[first]!) ? first + 1 : first
  let from = head
  while (from < question && size > maxSize) {
    const next = prompt.findIndex(({ role }, index) => index > from && role === 'user')
    const end = next === -1 || next > question ? question : next
    size -= sizeOf(prompt.slice(from, end))
    from = end
  }
  const isWithout = head > first && size > maxSize
  if (isWithout) size -= sizeOf(prompt.slice(first, head))
  const kept = [...prompt.slice(0, isWithout ? first : head), ...prompt.slice(from)]
  return size <= maxSize ? kept : cutResults(kept, size - maxSize)
}

/** Returns the size of a prompt without the messages before its question. */
const sizeWithoutHistory = (prompt: LanguageModelV4Prompt, question: number): number =>
  sizeOf(prompt.filter(({ role }, index) => role === 'system' || index >= question))

/** Returns the length of the longest text of a result. */
function lengthOf({ output }: LanguageModelV4ToolResultPart): number {
  if (output.type === 'text' || output.type === 'error-text') return output.value.length
  if (output.type !== 'content') return 0
  return Math.max(0, ...output.value.map((item) => (item.type === 'text' ? item.text.length : 0)))
}

/** Cuts the longest tool results to one common length that removes at least `excess` characters, if possible. */
function cutResults(prompt: LanguageModelV4Prompt, excess: number): LanguageModelV4Prompt {
  const lengths = prompt
    .flatMap((message) => (message.role === 'tool' ? message.content : []))
    .flatMap((part) => (part.type === 'tool-result' ? lengthOf(part) : []))
  const limit = commonLimit(lengths, excess, MIN_RESULT)
  return prompt.map((message): LanguageModelV4Message => {
    if (message.role !== 'tool') return message
    return {
      ...message,
      content: message.content.map((part) => (part.type === 'tool-result' ? cutResult(part, limit) : part)),
    }
  })
}

/** Returns the length to which all texts are cut so that at least `excess` characters go, but at least `least`. */
export function commonLimit(given: readonly number[], excess: number, least: number): number {
  const lengths = given.toSorted((a, b) => b - a)
  let limit = lengths[0] ?? 0
  for (let index = 0, spared = 0; index < lengths.length && spared < excess; index++) {
    const next = Math.max(lengths[index + 1] ?? 0, least)
    const gain = (index + 1) * (limit - next)
    const part = Math.min(gain, excess - spared)
    spared += part
    limit -= Math.ceil(part / (index + 1))
  }
  return Math.max(limit, least)
}

function cutResult(part: LanguageModelV4ToolResultPart, limit: number): LanguageModelV4ToolResultPart {
  const { output } = part
  const shortened = (text: string) => (text.length <= limit ? text : cut(text, Math.max(0, limit - MARK.length)) + MARK)
  if (output.type === 'text' || output.type === 'error-text') {
    return { ...part, output: { ...output, value: shortened(output.value) } }
  }
  if (output.type !== 'content') return part
  const value = output.value.map((item) => (item.type === 'text' ? { ...item, text: shortened(item.text) } : item))
  return { ...part, output: { ...output, value } }
}

/** Estimated bytes per token. Tokenizers differ and are not available here. */
const BYTES_PER_TOKEN = 4
/** Share of a context window that a prompt may fill, because its size is an estimate. */
const MARGIN = 0.9
/** Tokens reserved for the answer if no setting limits it. */
const ANSWER = 4_096
/** Maximum number of shortened requests in a step (contract-2.md section 2.1). */
const MAX_SHORTENED = 4

/** Returns the prompt size that fits a context window (tokens) beside the answer and the tools (bytes). */
export function maxPromptSize(
  contextWindow: number,
  maxOutputTokens: number | undefined,
  tools: readonly object[],
): number {
  const answer = Math.min(maxOutputTokens ?? ANSWER, contextWindow / 4)
  return Math.floor(
    (contextWindow - answer) * BYTES_PER_TOKEN * MARGIN - (tools.length && JSON.stringify(tools).length),
  )
}

type TooLong = { detail: string; contextWindow: number | null }
type Request = { prompt: LanguageModelV4Prompt; question: number; sent: LanguageModelV4Prompt }

/**
 * Returns the prompt size for the next request after the `attempt`-th rejection as too long in a step. Uses the numbers
 * in the rejection, otherwise halves the size. The third attempt omits all history, the fourth also half of the tool
 * results. Returns null if nothing is left to omit.
 */
export function shorterSize({ detail, contextWindow }: TooLong, request: Request, attempt: number): number | null {
  const { prompt, question, sent } = request
  if (attempt > MAX_SHORTENED) return null
  const size = sizeOf(sent)
  const fixed = sizeWithoutHistory(prompt, question)
  let maxSize = Math.floor(size * ratioOf(detail, contextWindow, size))
  if (attempt === MAX_SHORTENED - 1) maxSize = Math.min(maxSize, fixed)
  if (attempt === MAX_SHORTENED) maxSize = Math.min(maxSize, Math.floor(fixed / 2))
  return sizeOf(shorten(prompt, question, maxSize)) < size ? maxSize : null
}

function ratioOf(detail: string, limit: number | null, size: number): number {
  if (limit === null) return 0.5
  const requested = requestedIn(detail, limit)
  if (requested !== null) return Math.min(0.95, (limit / requested) * MARGIN)
  return Math.min(0.75, (limit * BYTES_PER_TOKEN * MARGIN) / size)
}

/** Returns the size of a rejected request (tokens) if the rejection states it beside the limit. */
function requestedIn(detail: string, limit: number): number | null {
  const numbers = [...detail.matchAll(/(?<![\w.-])\d[\d,_]*(?![\w-]|\.\d)/g)].map(([text]) =>
    Number(text.replace(/[,_]/g, '')),
  )
  const larger = numbers.filter((number) => number > limit && number < limit * 1_000)
  return larger.length ? Math.max(...larger) : null
}

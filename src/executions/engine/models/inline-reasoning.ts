import type { ReplyPart } from '../run/steps.ts'
import type { TextModel } from './text-model.ts'

/** Markers around reasoning inside the text of models. */
const TAGS: readonly (readonly [open: string, close: string])[] = [
  // DeepSeek, Qwen, MiniMax, GLM and most others.
  ['<think>', '</think>'],
  ['<thinking>', '</thinking>'],
  ['<thought>', '</thought>'],
  ['<reasoning>', '</reasoning>'],
  // Kimi, Seed-OSS.
  ['◁think▷', '◁/think▷'],
  ['<seed:think>', '</seed:think>'],
  // MiniMax-M3, K2 Think.
  ['<mm:think>', '</mm:think>'],
  ['<ifm|think>', '</ifm|think>'],
  // Magistral, Command A.
  ['[THINK]', '[/THINK]'],
  ['<|START_THINKING|>', '<|END_THINKING|>'],
  // gpt-oss on servers that do not parse its channels; Gemma.
  ['<|channel|>analysis<|message|>', '<|end|>'],
  ['<|start|>assistant<|channel|>analysis<|message|>', '<|end|>'],
  ['<|channel>thought\n', '<channel|>'],
]

/** Number of the first {@link TAGS} that chat templates may put into the prompt. */
const UNOPENED = 10

/** Markers between reasoning and answer that belong to neither. */
const HEADERS: readonly string[] = [
  '<|start|>assistant<|channel|>final<|message|>',
  '<|channel|>final<|message|>',
  '<|START_RESPONSE|>',
]
/** Ends of reasoning that arrived in a separate field. */
const ENDS = ['</think>', '</thinking>', '</thought>', '◁/think▷', '[/THINK]', '</mm:think>']
const SKIPPED = [...HEADERS, ...ENDS]
const MARKS = [...TAGS.map(([open]) => open), ...SKIPPED]

/** Maximum number of blanks before a marker. A model that repeats blanks for ever sends no reasoning. */
const MAX_BLANKS = 1_000

type Emit = (kind: 'text' | 'reasoning', text: string) => void

/**
 * Splits the text of an answer that begins with reasoning into reasoning and text, in chunks of any size. Ignores
 * markers after the first word of the answer (contract-2.md section 2.4).
 */
export type InlineReasoning = {
  /** Whether the answer has begun, so that everything that follows is text. */
  isOver: boolean
  read(delta: string, emit: Emit): void
  /** Emits the rest at the end of the answer. */
  end(emit: Emit): void
}

/** Creates the splitter of one answer. */
export function createInlineReasoning(): InlineReasoning {
  let held = ''
  /** Closing tag of the reasoning; null before and after it. */
  let close: string | null = null
  let hasThought = false

  function think(end: string, emit: Emit): boolean {
    const at = held.indexOf(end)
    if (at === -1) {
      const kept = overlap(held, end)
      emit('reasoning', held.slice(0, held.length - kept))
      held = kept ? held.slice(-kept) : ''
      return false
    }
    emit('reasoning', held.slice(0, at))
    held = held.slice(at + end.length)
    close = null
    hasThought = true
    return true
  }

  /** Reads the beginning: an opening tag, text, or too little to decide. Returns whether there is more to read. */
  function begin(reader: InlineReasoning, emit: Emit): boolean {
    const trimmed = held.trimStart()
    const tag = TAGS.find(([open]) => trimmed.startsWith(open))
    const header = SKIPPED.find((header) => trimmed.startsWith(header))
    if (tag) {
      close = tag[1]
      held = trimmed.slice(tag[0].length)
      return true
    }
    if (header) {
      hasThought = true
      held = trimmed.slice(header.length)
      return true
    }
    if (held.length - trimmed.length <= MAX_BLANKS && MARKS.some((mark) => mark.startsWith(trimmed))) return false
    reader.isOver = true
    emit('text', hasThought ? trimmed : held)
    held = ''
    return false
  }

  return {
    isOver: false,
    read(delta, emit) {
      held += delta
      while (close === null ? begin(this, emit) : think(close, emit));
    },
    end(emit) {
      if (close !== null) emit('reasoning', held)
      else if (!this.isOver && !(hasThought && !held.trim())) emit('text', hasThought ? held.trimStart() : held)
      held = ''
    },
  }
}

/** Returns the number of characters at the end of a text that may be the beginning of a marker. */
function overlap(text: string, mark: string): number {
  for (let length = Math.min(text.length, mark.length - 1); length > 0; length--)
    if (text.endsWith(mark.slice(0, length))) return length
  return 0
}

/**
 * Splits a complete answer whose reasoning has no opening tag, because the chat template put it into the prompt and the
 * server returns only the completion. The closing tag must end a line or directly precede the answer, outside code,
 * without an opening tag before it. Returns null for any other text.
 */
export function splitUnopened(text: string): { reasoning: string; text: string } | null {
  // gpt-oss on servers that drop the marks of its channels but leave their names.
  const unread = /^analysis(?=[A-Z"'])([\s\S]*?)assistantfinal/.exec(text)
  if (unread) return { reasoning: unread[1] ?? '', text: text.slice(unread[0].length).trimStart() }
  for (const [open, close] of TAGS.slice(0, UNOPENED)) {
    const at = text.indexOf(close)
    if (at === -1) continue
    const before = text.slice(0, at)
    const after = text.slice(at + close.length)
    // A sentence about the tag continues after it, mostly in quotes.
    const isTag = !/[`'"]$/.test(before) && /^(?:[ \t]*(?:\r?\n|$)|[\p{L}\p{N}])/u.test(after)
    const isCode = (before.match(/```/g)?.length ?? 0) % 2 === 1
    if (isTag && !isCode && !before.includes(open)) return { reasoning: before, text: after.trimStart() }
  }
  return null
}

/**
 * Separates the reasoning in the text of a complete reply, if its model may put it there and the reply has no reasoning
 * part.
 */
export function separateReasoning(reply: ReplyPart[], { splitReasoning }: TextModel): ReplyPart[] {
  const at = reply.findIndex(({ type }) => type === 'text')
  const part = reply[at]
  if (!splitReasoning || part?.type !== 'text' || reply.some(({ type }) => type === 'reasoning')) return reply
  const split = splitReasoning(part.text)
  if (!split) return reply
  return reply.toSpliced(at, 1, { type: 'reasoning', text: split.reasoning }, { ...part, text: split.text })
}

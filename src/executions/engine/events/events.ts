import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Db, Prisma, Tx } from '../../../db/client.ts'
import { parseExact } from '../../../lib/exact-json.ts'
import { takeWithinBudget, withByteBudget } from '../../../lib/page.ts'
import { appendFlat } from '../../../lib/text.ts'
import type { ContentBlock, Delta, ExecutionEvent, MessageData } from '../../../wire.ts'
import type { ReplyPart } from '../run/steps.ts'

export type { ContentBlock, Delta, ExecutionEvent, MessageData, Warning } from '../../../wire.ts'

export type ExecutionRow = Prisma.ExecutionGetPayload<object>

/**
 * The number of `meta`. `meta` and the terminal event are not stored. They follow from the execution's row, so that
 * they are always available and never contradict it.
 */
export const META_SEQ = 1

/** Columns of the execution from which the first and the last event are made. */
export const EDGE_COLUMNS = {
  id: true,
  chatId: true,
  sessionId: true,
  status: true,
  terminalSeq: true,
  inputTokens: true,
  outputTokens: true,
  stopReason: true,
  resultObject: true,
  error: true,
  errorCode: true,
  createdAt: true,
  completedAt: true,
} as const

export type Edge = Pick<ExecutionRow, keyof typeof EDGE_COLUMNS>

/** Returns the columns of a run that determine its first and last events. */
export const edgeOf = (row: Edge): Edge => ({
  id: row.id,
  chatId: row.chatId,
  sessionId: row.sessionId,
  status: row.status,
  terminalSeq: row.terminalSeq,
  inputTokens: row.inputTokens,
  outputTokens: row.outputTokens,
  stopReason: row.stopReason,
  resultObject: row.resultObject,
  error: row.error,
  errorCode: row.errorCode,
  createdAt: row.createdAt,
  completedAt: row.completedAt,
})

/** Returns the first event of a run. */
export const metaEvent = (row: Edge): ExecutionEvent => ({
  seq: META_SEQ,
  at: row.createdAt,
  event: 'meta',
  data: { executionId: row.id, chatId: row.chatId, sessionId: row.sessionId },
})

/** Returns the terminal event of an execution; null before its end. */
export function terminalEvent(row: Edge): ExecutionEvent | null {
  if (row.terminalSeq === null || row.completedAt === null) return null
  const { id: executionId, sessionId, terminalSeq: seq, completedAt: at, stopReason } = row
  if (row.status === 'completed') {
    const usage = { input_tokens: row.inputTokens, output_tokens: row.outputTokens }
    const object = row.resultObject === null ? {} : { resultObject: parseExact(row.resultObject) }
    const data = { sessionId, usage, executionId, status: 'completed', stopReason, ...object } as const
    return { seq, at, event: 'result', data }
  }
  const status = row.status === 'cancelled' ? 'cancelled' : 'failed'
  const message = status === 'cancelled' ? 'Execution was cancelled' : 'Chat execution failed'
  const code = status === 'cancelled' ? 'cancelled' : (row.errorCode ?? 'internal')
  const detail = row.error === null ? {} : { detail: row.error }
  return { seq, at, event: 'error', data: { message, executionId, status, code, ...detail, stopReason } }
}

/** Returns whether an event is the terminal one. */
export const isTerminal = ({ event }: { event: string }): boolean => event === 'result' || event === 'error'

/**
 * The stored form of a segment: adjacent text deltas of a step become one text with the length of each; other data
 * stays. Every delta and every other event takes one number, counted from the segment's first.
 */
type Stored = StoredText | { data: StoredData }
/** The text of a step is in its content, and is not stored twice. */
type StoredData = Exclude<MessageData, Assistant> | Omit<Assistant, 'text'>
type Assistant = Extract<MessageData, { messageType: 'assistant' }>
type StoredText = { step: number; text: string; lengths: number[]; thinking?: true }

type SegmentRow = Prisma.ExecutionEventGetPayload<object>

export type NumberedMessage = { seq: number; data: MessageData }

/** Length of a text after which the next delta starts a new segment (characters). */
const MAX_SEGMENT = 32 * 1024

/** Returns the rows of consecutive events: segments of a limited size, except for a larger single event. */
export function toSegments(executionId: string, at: Date, events: readonly NumberedMessage[]) {
  const segments: { firstSeq: number; lastSeq: number; stored: (StoredText | string)[] }[] = []
  let size = MAX_SEGMENT
  for (const { seq, data } of events) {
    if (size >= MAX_SEGMENT) {
      segments.push({ firstSeq: seq, lastSeq: seq, stored: [] })
      size = 0
    }
    const segment = segments.at(-1)!
    segment.lastSeq = seq
    if (data.messageType === 'stream_event') {
      addText(segment.stored, data)
      size += data.delta.text.length
    } else {
      const json = JSON.stringify({ data: toStored(data) })
      segment.stored.push(json)
      size += json.length
    }
  }
  return segments.map(({ stored, ...numbers }) => {
    const list = stored.map((each) => (typeof each === 'string' ? each : JSON.stringify(each)))
    return { executionId, ...numbers, at, events: `[${list}]` }
  })
}

function addText(stored: (StoredText | string)[], { step, delta }: Extract<MessageData, { delta: Delta }>): void {
  const last = stored.at(-1)
  if (typeof last === 'object' && last.step === step && !!last.thinking === isThinking(delta)) {
    last.text += delta.text
    last.lengths.push(delta.text.length)
  } else {
    const thinking = isThinking(delta) && ({ thinking: true } as const)
    stored.push({ step, text: delta.text, lengths: [delta.text.length], ...thinking })
  }
}

function toStored(data: MessageData): StoredData {
  if (data.messageType !== 'assistant') return data
  const { text: _, ...rest } = data
  return rest
}

function fromStored(data: StoredData): MessageData {
  if (data.messageType !== 'assistant') return data
  const { content, ...rest } = data
  return { ...rest, text: textOf(content), content }
}

const isThinking = ({ type }: Delta): boolean => type === 'thinking_delta'

/**
 * Removes a run's events from a number on, before a fenced transaction stores them again. An earlier write failed, and
 * may have been committed all the same.
 */
export const forgetFrom = (tx: Tx, executionId: string, seq: number) =>
  tx.executionEvent.deleteMany({ where: { executionId, firstSeq: { gte: seq } } })

/** Stores the last events of a run in its fenced transaction. */
export async function storeLast(
  tx: Tx,
  executionId: string,
  at: Date,
  { events, mayBeStored }: { events: readonly NumberedMessage[]; mayBeStored: boolean },
): Promise<void> {
  const [first] = events
  if (!first) return
  if (mayBeStored) await forgetFrom(tx, executionId, first.seq)
  await tx.executionEvent.createMany({ data: toSegments(executionId, at, events) })
}

const MAX_JOINED = 32 * 1024

/**
 * Merges adjacent segments that contain only text of the same step. Their times are lost, except that of the first.
 * Returns the merged segments.
 */
function joinText(rows: readonly SegmentRow[]): SegmentRow[] {
  const joined: (SegmentRow & { text: StoredText; count: number })[] = []
  for (const row of rows) {
    const last = joined.at(-1)
    const [text, ...more] = JSON.parse(row.events) as Stored[]
    if (!text || !('text' in text) || more.length) continue
    const follows =
      last?.lastSeq === row.firstSeq - 1 && last.text.step === text.step && last.text.thinking === text.thinking
    if (!follows || last.text.text.length > MAX_JOINED) joined.push({ ...row, text, count: 1 })
    else {
      last.text.text += text.text
      last.text.lengths.push(...text.lengths)
      last.lastSeq = row.lastSeq
      last.count++
    }
  }
  return joined.flatMap(({ text, count, ...row }) => (count > 1 ? { ...row, events: JSON.stringify([text]) } : []))
}

/** Stores the text of an ended run in the minimum number of segments. */
export async function joinSegments(tx: Tx, executionId: string): Promise<void> {
  const rows = await tx.executionEvent.findMany({ where: { executionId }, orderBy: { firstSeq: 'asc' } })
  for (const { firstSeq, lastSeq, events } of joinText(rows)) {
    const joined = { executionId, firstSeq: { gt: firstSeq, lte: lastSeq } }
    await tx.executionEvent.deleteMany({ where: joined })
    // Throws, and so rolls back, if retention has removed the first segment meanwhile.
    const key = { executionId_firstSeq: { executionId, firstSeq } }
    await tx.executionEvent.update({ where: key, data: { lastSeq, events }, select: { executionId: true } })
  }
}

/** Yields the events of a segment. */
export function* fromSegment(row: SegmentRow): Generator<ExecutionEvent> {
  let seq = row.firstSeq
  const message = (data: MessageData): ExecutionEvent => ({ seq: seq++, at: row.at, event: 'message', data })
  for (const stored of parseExact(row.events) as Stored[]) {
    if ('data' in stored) {
      yield message(fromStored(stored.data))
      continue
    }
    let from = 0
    for (const length of stored.lengths) {
      const text = stored.text.slice(from, from + length)
      from += length
      const type = stored.thinking ? 'thinking_delta' : 'text_delta'
      yield message({ messageType: 'stream_event', step: stored.step, delta: { type, text } })
    }
  }
}

/** Size after which a batch ends (bytes). A slow reader occupies the memory of a whole batch. */
const MAX_BATCH = 64 * 1024
const MAX_SEGMENTS = 100

/** Resolves in the event loop turn after the one in which the latest batch is read. */
let free: Promise<void> = Promise.resolve()

/**
 * Resolves when the caller may read a batch: at once, or one turn of the event loop after the reader before. A batch
 * takes milliseconds if it has a long reply, and hundreds of clients may read the same run.
 */
function ownTurn(): Promise<void> {
  const own = free
  free = own.then(() => nextTurn())
  return own
}

/** Yields the stored events after a number, in order and in batches. */
export async function* readEvents(db: Db | Tx, executionId: string, after: number): AsyncGenerator<ExecutionEvent[]> {
  for (let last = after; ; ) {
    await ownTurn()
    const rows = await db.executionEvent.findMany({
      where: { executionId, lastSeq: { gt: last } },
      orderBy: { firstSeq: 'asc' },
      ...withByteBudget({ take: MAX_SEGMENTS + 1 }, MAX_BATCH),
    })
    const events = rows.flatMap((row) => [...fromSegment(row)]).filter((event) => event.seq > last)
    if (events.length) yield events
    if (rows.length <= 1 || (!isFull(rows) && takeWithinBudget(rows, MAX_SEGMENTS, MAX_BATCH).length === rows.length))
      return
    last = rows.at(-1)!.lastSeq
  }
}

/** Returns whether segments fill a batch, by the length of their JSON. */
const isFull = (rows: readonly SegmentRow[]): boolean =>
  rows.reduce((sum, { events }) => sum + events.length, 0) > MAX_BATCH

/** Returns the length of an event's text (characters), without inputs of tools. */
export function lengthOf(data: MessageData): number {
  if (data.messageType === 'stream_event') return data.delta.text.length
  if (data.messageType === 'tool_result') return data.content.length
  if (data.messageType !== 'assistant') return 0
  return data.content.reduce((sum, block) => sum + ('text' in block ? block.text.length : 0), 0)
}

/** Joins the texts of a reply, without tool calls. */
export const textOf = (parts: readonly (ContentBlock | ReplyPart)[]): string =>
  parts.map((part) => (part.type === 'text' ? part.text : '')).join('')

/** The text of a step. */
export type TextProgress = { step: number; text: string }

/** Returns the text of the current step, or of the last step with text, after one more message. */
export function textSoFar(progress: TextProgress, data: MessageData): TextProgress {
  if (data.messageType === 'resumed') return data.step === progress.step ? { ...progress, text: '' } : progress
  if (data.messageType === 'assistant') return { step: data.step, text: data.text }
  if (data.messageType !== 'stream_event' || isThinking(data.delta)) return progress
  const before = data.step === progress.step ? progress.text : ''
  return { step: data.step, text: appendFlat(before, data.delta.text) }
}

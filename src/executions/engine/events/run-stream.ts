import type { Batch } from './event-writes.ts'
import { type ExecutionEvent, type ExecutionRow, type MessageData, terminalEvent } from './events.ts'

/** Number of event numbers that are reserved at a time. */
export const SEQ_BLOCK = 256
/** Maximum size of a subscriber's queue (bytes, estimated). Beyond it the subscriber reads from the database. */
const MAX_WAITING = 256 * 1024
/**
 * Size of a queue after which only a part of it is taken (bytes, estimated). A slow reader occupies the memory of it.
 */
const MAX_TAKEN = 128 * 1024

/** A run is compacted if it has more segments than this, of a smaller average size (bytes, estimated). */
const MANY_SEGMENTS = 16
const SMALL_SEGMENT = 8 * 1024

export type MessageEvent = Extract<ExecutionEvent, { event: 'message' }>

/** A subscriber of an execution in this process. */
export type Subscriber = {
  readonly stream: RunStream
  waiting: ExecutionEvent[]
  size: number
  isEnded: boolean
  wake: ((hasMore: boolean) => void) | null
}

/** The events of one attempt of an execution in this process. */
export type RunStream = {
  readonly row: ExecutionRow
  readonly onLost: () => void
  nextSeq: number
  reserved: number
  /** Events that are not acknowledged as stored. */
  unpersisted: MessageEvent[]
  /** Whether a failed write may have stored a part of them, because only its acknowledgement was lost. */
  mayBeStored: boolean
  /**
   * Whether an event of the attempt is stored. Before that, subscribers see nothing (contract.md section 4,
   * "Durability").
   */
  stored: boolean
  /**
   * Whether unpersisted events are hidden from subscribers until they are stored: none is stored yet, or one must
   * survive a crash once it is visible.
   */
  blocked: boolean
  /** The number of the last published event. */
  lastPublishedSeq: number
  /** Number of stored segments, and their total size (bytes, estimated). */
  segments: number
  size: number
  isEnding: boolean
  subscribers: readonly Subscriber[]
  reservation: PromiseWithResolvers<void> | null
}

/** Opens the stream of one attempt. Its first numbers are reserved. */
export const openStream = (row: ExecutionRow, onLost: () => void): RunStream => ({
  row,
  onLost,
  nextSeq: row.seqReserved - SEQ_BLOCK + 1,
  reserved: row.seqReserved,
  unpersisted: [],
  mayBeStored: false,
  stored: false,
  blocked: true,
  lastPublishedSeq: 0,
  segments: 0,
  size: 0,
  isEnding: false,
  subscribers: [],
  reservation: null,
})

/** Numbers an event and adds it. Publishes it unless it has to be stored first. */
export function appendTo(stream: RunStream, data: MessageData, at: Date): void {
  const event: MessageEvent = { seq: stream.nextSeq++, at, event: 'message', data }
  stream.unpersisted.push(event)
  stream.blocked ||= mustSurviveCrash(data)
  if (!stream.blocked && !isClosing(data)) publish(stream, [event])
  if (stream.nextSeq > stream.reserved) stream.reservation ??= Promise.withResolvers()
}

/** Publishes stored events, and releases a run that waited for numbers. */
export function acknowledge({ stream, events, reserve }: Batch): void {
  stream.reserved = reserve ?? stream.reserved
  stream.unpersisted = stream.unpersisted.slice(events.length)
  stream.mayBeStored = false
  stream.segments++
  for (const event of events) stream.size += sizeOf(event)
  stream.stored = true
  if (stream.lastPublishedSeq < events.at(-1)!.seq) {
    stream.blocked = stream.unpersisted.some(({ data }) => mustSurviveCrash(data))
    const first = stream.unpersisted.findIndex(({ data }) => mustSurviveCrash(data) || isClosing(data))
    publish(stream, [...events, ...(first >= 0 ? stream.unpersisted.slice(0, first) : stream.unpersisted)])
  }
  if (stream.reservation && stream.nextSeq <= stream.reserved) {
    stream.reservation.resolve()
    stream.reservation = null
  }
}

function publish(stream: RunStream, given: readonly ExecutionEvent[]): void {
  const events = given.filter(({ seq }) => seq > stream.lastPublishedSeq)
  stream.lastPublishedSeq = events.at(-1)?.seq ?? stream.lastPublishedSeq
  for (const subscriber of stream.subscribers) {
    if (subscriber.isEnded) continue
    for (const event of events) {
      subscriber.waiting.push(event)
      subscriber.size += sizeOf(event)
    }
    if (subscriber.size > MAX_WAITING) sendToDatabase(subscriber)
    else subscriber.wake?.(true)
  }
}

/** The end of a stream whose terminal event is not written yet. */
export type Sealed = {
  /** Events that are not acknowledged as stored. */
  events: readonly MessageEvent[]
  /** Whether a failed write may have stored a part of them. */
  mayBeStored: boolean
  /** Number of the terminal event. */
  terminalSeq: number
  /** Whether the stored events lie in many small segments. */
  scattered: boolean
}

/** Returns the end of a stream that gets no further events. */
export function sealed({ unpersisted: events, mayBeStored, nextSeq: terminalSeq, segments, size }: RunStream): Sealed {
  const scattered = segments > MANY_SEGMENTS && size / segments < SMALL_SEGMENT
  return { events, mayBeStored, terminalSeq, scattered }
}

/** Publishes the terminal event of a run that has ended here, and ends all subscribers. */
export function closeStream(stream: RunStream, ended: ExecutionRow | null): void {
  stream.reservation?.resolve()
  const terminal = ended && terminalEvent(ended)
  if (terminal) publish(stream, [...stream.unpersisted, terminal])
  for (const subscriber of stream.subscribers) {
    subscriber.isEnded = true
    subscriber.wake?.(subscriber.waiting.length > 0)
  }
}

/** Adds a subscriber to the events after a number. Published events that are not stored yet wait for it. */
export function addSubscriber(stream: RunStream, after: number): Subscriber {
  const waiting = stream.unpersisted.filter(({ seq }) => seq > after && seq <= stream.lastPublishedSeq)
  const size = waiting.reduce((sum, event) => sum + sizeOf(event), 0)
  const subscriber: Subscriber = { stream, waiting, size, isEnded: false, wake: null }
  stream.subscribers = stream.subscribers.concat(subscriber)
  return subscriber
}

/**
 * Returns whether the database may have events that a new subscriber of the stream does not get, such as those of
 * earlier attempts.
 */
export const hasStored = ({ stored, row }: RunStream): boolean => stored || row.attempt > 1

/** Waits for events. Returns false if the subscriber must read from the database again. */
export const waitForMore = (subscriber: Subscriber): Promise<boolean> =>
  new Promise((resolve) => {
    if (subscriber.waiting.length || subscriber.isEnded) resolve(subscriber.waiting.length > 0)
    else subscriber.wake = resolve
  })

/** Takes the events that wait for the subscriber, or the first ones of a long queue. */
export function drain(subscriber: Subscriber): readonly ExecutionEvent[] {
  const { waiting, size } = subscriber
  let taken = size
  let count = waiting.length
  if (size > MAX_TAKEN) for (taken = 0, count = 0; taken < MAX_TAKEN; count++) taken += sizeOf(waiting[count]!)
  subscriber.waiting = waiting.slice(count)
  subscriber.size = size - taken
  return count === waiting.length ? waiting : waiting.slice(0, count)
}

/** Ends the subscriber. */
export function unsubscribe(subscriber: Subscriber): void {
  const { stream } = subscriber
  stream.subscribers = stream.subscribers.filter((other) => other !== subscriber)
  sendToDatabase(subscriber)
}

/** Returns whether a subscriber waits for the stream's events to be stored, or the run for numbers. */
export const isAwaited = ({ blocked, subscribers, reservation }: RunStream): boolean =>
  (blocked && subscribers.length > 0) || reservation !== null

/** Sends a subscriber to the database. */
export function sendToDatabase(subscriber: Subscriber): void {
  subscriber.isEnded = true
  subscriber.waiting = []
  subscriber.size = 0
  subscriber.wake?.(false)
}

/**
 * Returns whether an event must survive a crash once it is visible: a resumed run publishes tool calls and their
 * results once.
 */
const mustSurviveCrash = (data: MessageData): boolean =>
  data.messageType === 'assistant'
    ? data.content.some(({ type }) => type === 'tool_use')
    : data.messageType !== 'stream_event'

/**
 * Returns whether an event is the final answer. Subscribers get it with the terminal event, which is published right
 * after its write.
 */
const isClosing = (data: MessageData): boolean => data.messageType === 'assistant' && !mustSurviveCrash(data)

/** Estimates the memory of an event (bytes). The estimate grows with the text. */
function sizeOf(event: ExecutionEvent): number {
  const data = event.event === 'message' ? event.data : null
  const text =
    data?.messageType === 'stream_event' ? data.delta.text : data?.messageType === 'tool_result' ? data.content : ''
  return 200 + text.length * 2
}

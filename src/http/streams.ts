import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { VisibleEvent } from '../events/show.ts'
import { isTerminal } from '../executions/engine/events/events.ts'
import { isOver } from '../executions/router.ts'
import { createCaller } from '../router.ts'
import { batchesOf, trackedOf } from '../subscriptions.ts'
import type { Context } from '../trpc.ts'
import type { ChatEvent } from '../wire.ts'
import {
  APPROVAL_CHANGES_PATH,
  CHAT_EVENTS_PATH,
  EVENTS_PATH,
  FEED_PATH,
  FEED_STREAM_PATH,
  patternOf,
  TASK_CHANGES_PATH,
} from './paths.ts'
import { EVENT_STREAM, type ServerSentEvent, writeEvents } from './sse.ts'
import { checkQuery } from './unknown-names.ts'

// Subscriptions as streams of server-sent events.

const FEED = patternOf(FEED_PATH)

type Caller = ReturnType<typeof createCaller>

/** A subscription as a stream of server-sent events. */
type EventStream = {
  pattern: RegExp
  /** Query parameters. */
  query: readonly string[]
  /** Whether it can resume after a `Last-Event-ID`. */
  resumes?: true
  /** Opens it with the query, which the procedure validates. */
  open: (caller: Caller, input: Readonly<Record<string, string>>) => Promise<Opened>
}

type Opened = {
  batches: AsyncIterable<readonly ServerSentEvent[]>
  /** Recognizes the last event. A stream without one ends with the connection. */
  isLast?: (event: ServerSentEvent) => boolean
  /** Whether the client has the last event. Without the 204 an EventSource would reconnect forever. */
  isOver?: boolean
}

const EVENT_STREAMS: readonly EventStream[] = [
  {
    pattern: patternOf(EVENTS_PATH),
    query: ['after', 'content'],
    resumes: true,
    async open(caller, { id: executionId, ...input }) {
      const events = await caller.executions.events({ executionId, ...input } as never)
      return { batches: batchesOf(events), isLast: isTerminal, isOver: isOver(events) }
    },
  },
  {
    pattern: patternOf(CHAT_EVENTS_PATH),
    query: ['content'],
    resumes: true,
    open: async (caller, input) => ({ batches: numbered(batchesOf(await caller.chats.events(input as never))) }),
  },
  {
    pattern: patternOf(TASK_CHANGES_PATH),
    query: ['id'],
    open: async (caller, { id }) => ({ batches: oneByOne(await caller.tasks.changes({ id })) }),
  },
  {
    pattern: patternOf(APPROVAL_CHANGES_PATH),
    query: ['executionId'],
    open: async (caller, { executionId }) => ({ batches: oneByOne(await caller.approvals.changes({ executionId })) }),
  },
  {
    pattern: patternOf(FEED_STREAM_PATH),
    query: ['since', 'types'],
    resumes: true,
    open: async (caller, input) => ({ batches: named(trackedOf(await caller.events.follow(input as never))) }),
  },
]

/** Returns whether a stream is at a path. */
export const isStreamPath = (path: string): boolean => EVENT_STREAMS.some(({ pattern }) => pattern.test(path))

/** Finds the stream at a path. A list of events is the stream of them for a client that accepts one. */
export function findStream(path: string, { accept = '' }: IncomingHttpHeaders) {
  const at = FEED.test(path) && /text\/event-stream/i.test(accept) ? FEED_STREAM_PATH : path
  for (const stream of EVENT_STREAMS) {
    const [isMatch, id] = stream.pattern.exec(at) ?? []
    if (isMatch !== undefined) return { stream, id }
  }
  return null
}

/** Sends a subscription as a documented stream. */
export async function sendStream(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  { stream, id }: { stream: EventStream; id: string | undefined },
): Promise<void> {
  const url = req.url ?? '/'
  await checkQuery(context, url, stream.query)
  const { searchParams } = new URL(url, 'http://localhost')
  const input: Record<string, string> = {}
  for (const name of stream.query) if (searchParams.has(name)) input[name] = searchParams.get(name) ?? ''
  if (id !== undefined) input.id = id
  const lastEventId = req.headers['last-event-id']
  if (stream.resumes && lastEventId) input.lastEventId = String(lastEventId)
  const { batches, isLast, isOver } = await stream.open(createCaller(context), input)
  if (!isOver && req.method !== 'HEAD') return writeEvents(res, batches, isLast)
  await batches[Symbol.asyncIterator]().return?.()
  res.writeHead(isOver ? 204 : 200, isOver ? {} : EVENT_STREAM).end()
}

async function* oneByOne(events: AsyncIterable<ServerSentEvent>) {
  for await (const event of events) yield [event]
}

async function* numbered(batches: AsyncIterable<readonly ChatEvent[]>) {
  for await (const events of batches) yield events.map(({ id: seq, event, data }) => ({ seq, event, data }))
}

async function* named(events: AsyncIterable<{ id: string; data: VisibleEvent }>) {
  for await (const { id: seq, data: message } of events) {
    const { type: event, ...data } = message
    yield [{ seq, event, data }]
  }
}

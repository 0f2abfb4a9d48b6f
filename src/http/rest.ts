import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { UploadFile } from '../client/schema.ts'
import { AppError, methodNotAllowed, noSuchPath } from '../errors.ts'
import type { VisibleEvent } from '../events/show.ts'
import { type ExecutionRow, isTerminal } from '../executions/engine/events/events.ts'
import { followFrom } from '../executions/follow.ts'
import { isOver } from '../executions/router.ts'
import type { Execute } from '../executions/schema.ts'
import { cancelIfActive } from '../executions/service.ts'
import { readKey } from '../idempotency.ts'
import { createCaller } from '../router.ts'
import { batchesOf, trackedOf } from '../subscriptions.ts'
import { type Context, fromTRPCError } from '../trpc.ts'
import type { ChatEvent } from '../wire.ts'
import { exportAudit } from './audit.ts'
import { hasBody, readJson, sendJson } from './body.ts'
import { makeChange, sendTagged, tagged } from './conditional.ts'
import { download, upload, uploadToSpace } from './media.ts'
import {
  APPROVAL_CHANGES_PATH,
  AUDIT_EXPORT_PATH,
  CHAT_EVENTS_PATH,
  CONTENT_PATH,
  EVENTS_PATH,
  FEED_PATH,
  FEED_STREAM_PATH,
  MEDIA_PATH,
  patternOf,
  SPACE_UPLOAD_PATH,
  TASK_CHANGES_PATH,
} from './paths.ts'
import { findRoute, methodsAt, type Route } from './routes.ts'
import { EVENT_STREAM, type ServerSentEvent, writeEvents } from './sse.ts'
import { checkQuery, explainByFields, isAdded, refuseParameter, unknownFields, warningsOf } from './unknown-names.ts'

const FEED = patternOf(FEED_PATH)
const MEDIA_CONTENT = patternOf(CONTENT_PATH)
const MEDIA = patternOf(MEDIA_PATH)
const AUDIT_EXPORT = patternOf(AUDIT_EXPORT_PATH)
const SPACE_UPLOAD = patternOf(SPACE_UPLOAD_PATH)
const isUploadPath = (path: string) => MEDIA.test(path) || SPACE_UPLOAD.test(path)

/**
 * Parses the query: a text for each name, or a list for a repeated name or a list field. Returns the 400 for an unknown
 * parameter, which is thrown after authentication.
 */
function readQuery(
  url: string,
  { lists, inQuery, known }: Pick<Route, 'lists' | 'inQuery' | 'known'>,
): Record<string, unknown> | AppError {
  const query: Record<string, unknown> = Object.create(null)
  const start = url.indexOf('?')
  if (start === -1) return query
  const parameters = new URLSearchParams(url.slice(start + 1))
  for (const name of parameters.keys()) {
    const names = inQuery ?? known
    if (names && !names.has(name)) {
      if (isAdded(name)) continue
      return refuseParameter(name, names)
    }
    const values = parameters.getAll(name)
    query[name] = values.length > 1 || lists.has(name) ? values : values[0]
  }
  return query
}

/** Parses the query. Throws the 400 after authentication. */
async function checkedQuery(admit: () => Promise<unknown>, ...of: Parameters<typeof readQuery>) {
  const query = readQuery(...of)
  if (!(query instanceof AppError)) return query
  await admit()
  throw query
}

const UPLOAD_QUERY = { lists: new Set<string>(), inQuery: null, known: new Set(Object.keys(UploadFile.shape)) }

/** Decodes characters that need no encoding: `%41` equals `A` (RFC 3986, 6.2.2.2). Ids contain no others. */
function decodeUnreserved(path: string): string {
  if (!path.includes('%')) return path
  return path.replace(/%([2-7][0-9a-f])/gi, (encoded, hex: string) => {
    const character = String.fromCharCode(Number.parseInt(hex, 16))
    return /[\w.~-]/.test(character) ? character : encoded
  })
}

/** Handles REST: every procedure with a `restMeta(…)`, and the streams. Throws errors for the error body. */
export async function handleRest(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const path = decodeUnreserved((req.url ?? '').split('?', 1)[0] ?? '')
  // Node sends no body in answer to a HEAD.
  const method = req.method === 'HEAD' ? 'GET' : (req.method ?? '')
  const stream = method === 'GET' ? findStream(path, req.headers) : null
  if (stream) return sendStream(context, req, res, stream)
  const [, mediaId] = MEDIA_CONTENT.exec(path) ?? []
  if (mediaId && method === 'GET') {
    await checkQuery(context, req.url ?? '', [])
    return download(context, req, res, mediaId)
  }

  if (method === 'GET' && AUDIT_EXPORT.test(path)) return exportAudit(context, req, res)

  const found = findRoute(method, path)
  const isUpload = method === 'POST' && isUploadPath(path)
  if (!found && !isUpload) throw refuseMethod(path)
  const isChange = method === 'PATCH' || method === 'DELETE'
  const key = method === 'POST' || isChange ? req.headers['idempotency-key'] : undefined
  const admit = found ? () => found.route.admit(context) : context.identify
  if (key !== undefined) await admit()
  const idempotency = key === undefined ? null : readKey(String(key), method, path.replace(/\/$/, ''))
  if (!found) {
    const created = MEDIA.test(path)
      ? await checkQuery(context, req.url ?? '', []).then(() => upload(context, req, idempotency))
      : await uploadToSpace(context, req, await checkedQuery(admit, req.url ?? '', UPLOAD_QUERY), idempotency)
    if (idempotency?.replayed) res.setHeader('Idempotent-Replayed', 'true')
    return sendJson(res, 200, created)
  }
  const { route, parameters } = found
  const query = await checkedQuery(admit, req.url ?? '', route)
  // Authenticates before it reads the body. Query and path win over the body: `onDisconnect` may be in both.
  const body = hasBody(req) && method !== 'GET' ? await admit().then(() => readJson(req)) : {}
  const input: Record<string, unknown> = { ...body, ...query, ...parameters, ...(route.isStream && { stream: true }) }
  const unknown = unknownFields(body, route.known)
  const warnings = unknown.length ? warningsOf(unknown) : null
  if (warnings) res.setHeader('X-Muster-Warnings', String(warnings.length))
  let accepted: Accepted | undefined
  const onAccepted = (row: ExecutionRow, actor: Actor) => {
    accepted = { row, actor }
    // An error also names its execution.
    res.setHeader('X-Execution-Id', row.id)
  }
  const ifMatch = isChange ? req.headers['if-match'] : undefined
  const isConditional = ifMatch !== undefined || (isChange && idempotency !== null)
  const twin = isConditional ? (findRoute('GET', path)?.route ?? null) : null
  const called = isConditional
    ? makeChange(context, { route, twin: twin?.isSingle ? twin : null, parameters, input, idempotency, ifMatch })
    : route.call({ ...context, idempotency, onAccepted: route.canStream ? onAccepted : null }, async () => input)
  const answer = await called
    .catch((error: unknown) => {
      throw explainByFields(fromTRPCError(error), unknown, route.known ?? [])
    })
    .finally(() => {
      // The first answer may be an error: that of a cancelled run.
      if (idempotency?.replayed) res.setHeader('Idempotent-Replayed', 'true')
    })
  if (accepted && input.stream === true) return streamRun(context, res, accepted, input as StreamOptions)
  if (route.isSingle) return sendTagged(req, res, await tagged(route, answer as object))
  const complete = warnings ? withWarnings(answer as object, warnings) : (answer as { warnings?: unknown })
  const count = Array.isArray(complete.warnings)
    ? complete.warnings.filter((warning) => typeof warning === 'string').length
    : 0
  if (count) res.setHeader('X-Muster-Warnings', String(count))
  sendJson(res, 200, complete)
}

/** Appends warnings to those of an answer. */
function withWarnings(answer: object & { warnings?: unknown }, warnings: readonly string[]): { warnings: unknown[] } {
  return { ...answer, warnings: [...(Array.isArray(answer.warnings) ? answer.warnings : []), ...warnings] }
}

/** Returns the 405 of a path with other methods, or the 404 of an unknown path. */
function refuseMethod(path: string): Error {
  const isStream = [...EVENT_STREAMS.map(({ pattern }) => pattern), MEDIA_CONTENT, AUDIT_EXPORT].some((of) =>
    of.test(path),
  )
  const methods = [...methodsAt(path), ...(isStream ? ['GET'] : []), ...(isUploadPath(path) ? ['POST'] : [])]
  if (!methods.length) return noSuchPath(path)
  return methodNotAllowed(methods.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method])))
}

/** The execution that a request has started or joined, and the caller for whom it was accepted. */
type Accepted = { row: ExecutionRow; actor: Actor }

/** Options of a request's stream, as in `Execute`. */
type StreamOptions = Pick<z.output<typeof Execute>, 'onDisconnect' | 'content'>

/** Streams from the first event on, whatever event id the request has, because it starts a run and resumes none. */
function streamRun(
  { deps, streamTo }: Context,
  res: ServerResponse,
  { row, actor }: Accepted,
  { onDisconnect, content }: StreamOptions,
): Promise<void> {
  const written = writeEvents(res, followFrom(actor, deps, row, 0, streamTo, { content }), isTerminal)
  // Stays synchronous, because most streams have nothing to wait for afterwards.
  if (onDisconnect !== 'cancel') return written
  return written.then(async () => {
    // A stream without access was ended by the server, not by a disconnect.
    if (res.closed) await cancelIfActive(actor, deps, row.id)
  })
}

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

/** Finds the stream at a path. A list of events is the stream of them for a client that accepts one. */
function findStream(path: string, { accept = '' }: IncomingHttpHeaders) {
  const at = FEED.test(path) && /text\/event-stream/i.test(accept) ? FEED_STREAM_PATH : path
  for (const stream of EVENT_STREAMS) {
    const [isMatch, id] = stream.pattern.exec(at) ?? []
    if (isMatch !== undefined) return { stream, id }
  }
  return null
}

/** Sends a subscription as a documented stream. */
async function sendStream(
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

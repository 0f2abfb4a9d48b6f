import type { IncomingMessage, ServerResponse } from 'node:http'
import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { batchesOf as chatBatchesOf } from '../chats/router.ts'
import { UploadFile } from '../client/schema.ts'
import { AppError, methodNotAllowed, noSuchPath } from '../errors.ts'
import { batchesOf as feedBatchesOf } from '../events/router.ts'
import type { FeedEvent } from '../events/service.ts'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import { batchesOf, isOver } from '../executions/router.ts'
import type { Execute } from '../executions/schema.ts'
import { cancel, followFrom } from '../executions/service.ts'
import { readKey } from '../idempotency.ts'
import { createCaller } from '../router.ts'
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

const EVENTS = patternOf(EVENTS_PATH)
const CHAT_EVENTS = patternOf(CHAT_EVENTS_PATH)
const TASK_CHANGES = patternOf(TASK_CHANGES_PATH)
const APPROVAL_CHANGES = patternOf(APPROVAL_CHANGES_PATH)
const FEED = patternOf(FEED_PATH)
const FEED_STREAM = patternOf(FEED_STREAM_PATH)
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
  const said = new URLSearchParams(url.slice(start + 1))
  for (const name of said.keys()) {
    const names = inQuery ?? known
    if (names && !names.has(name)) {
      if (isAdded(name)) continue
      return refuseParameter(name, names)
    }
    const values = said.getAll(name)
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

/** `%41` equals `A` (RFC 3986, 6.2.2.2). Ids contain only unreserved characters, so no others need decoding. */
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
  const [, executionId] = EVENTS.exec(path) ?? []
  if (executionId && method === 'GET') return sendEvents(context, req, res, executionId)
  const [, chatId] = CHAT_EVENTS.exec(path) ?? []
  if (chatId && method === 'GET') return sendChatEvents(context, req, res, chatId)
  if (method === 'GET' && TASK_CHANGES.test(path)) {
    return sendChanges(context, req, res, ['id'], (caller, input) => caller.tasks.changes(input))
  }
  if (method === 'GET' && APPROVAL_CHANGES.test(path)) {
    return sendChanges(context, req, res, ['executionId'], (caller, input) => caller.approvals.changes(input))
  }
  const wantsFeed = FEED_STREAM.test(path) || (FEED.test(path) && /text\/event-stream/i.test(req.headers.accept ?? ''))
  if (wantsFeed && method === 'GET') return sendFeed(context, req, res)
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
  const said = warnings ? withWarnings(answer as object, warnings) : (answer as { warnings?: unknown })
  const count = Array.isArray(said.warnings) ? said.warnings.filter((warning) => typeof warning === 'string').length : 0
  if (count) res.setHeader('X-Muster-Warnings', String(count))
  sendJson(res, 200, said)
}

/** Appends warnings to those of an answer. */
function withWarnings(answer: object & { warnings?: unknown }, warnings: readonly string[]): { warnings: unknown[] } {
  return { ...answer, warnings: [...(Array.isArray(answer.warnings) ? answer.warnings : []), ...warnings] }
}

/** Returns the 405 of a path with other methods, or the 404 of an unknown path. */
function refuseMethod(path: string): Error {
  const isStream = [EVENTS, CHAT_EVENTS, TASK_CHANGES, APPROVAL_CHANGES, MEDIA_CONTENT, AUDIT_EXPORT].some((of) =>
    of.test(path),
  )
  const methods = [...methodsAt(path), ...(isStream ? ['GET'] : []), ...(isUploadPath(path) ? ['POST'] : [])]
  if (!methods.length) return noSuchPath()
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
  const written = writeEvents(res, followFrom(actor, deps, row, 0, streamTo, { content }))
  // Stays synchronous, because most streams have nothing to wait for afterwards.
  if (onDisconnect !== 'cancel') return written
  return written.then(async () => {
    // A stream without access was ended by the server, not by a disconnect. The run may have ended already.
    if (res.closed) await cancel(actor, deps, row.id).catch(() => {})
  })
}

/** Sends the subscription `executions.events` as the documented stream. */
async function sendEvents(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  executionId: string,
): Promise<void> {
  await checkQuery(context, req.url ?? '', ['after', 'content'])
  const { searchParams } = new URL(req.url ?? '/', 'http://localhost')
  const after = searchParams.get('after') ?? undefined
  const content = searchParams.get('content') ?? undefined
  const lastEventId = req.headers['last-event-id']
  const events = await createCaller(context).executions.events({ executionId, after, lastEventId, content } as never)
  // Without the 204 an EventSource would reconnect forever.
  if (isOver(events)) {
    await events[Symbol.asyncIterator]().return?.()
    res.writeHead(204).end()
    return
  }
  if (req.method !== 'HEAD') return writeEvents(res, batchesOf(events))
  await events[Symbol.asyncIterator]().return?.()
  res.writeHead(200, EVENT_STREAM).end()
}

/** Sends the subscription `chats.events` as the documented stream. It ends with the connection. */
async function sendChatEvents(context: Context, req: IncomingMessage, res: ServerResponse, id: string): Promise<void> {
  await checkQuery(context, req.url ?? '', ['content'])
  const content = new URL(req.url ?? '/', 'http://localhost').searchParams.get('content') ?? undefined
  const lastEventId = req.headers['last-event-id'] || undefined
  const events = await createCaller(context).chats.events({ id, lastEventId, content } as never)
  if (req.method !== 'HEAD') return writeEvents(res, numbered(chatBatchesOf(events)), () => false)
  await events[Symbol.asyncIterator]().return?.()
  res.writeHead(200, EVENT_STREAM).end()
}

type Caller = ReturnType<typeof createCaller>

/**
 * Sends a subscription to changes as the documented stream, from now on. Its events have no ids, because it cannot
 * resume.
 */
async function sendChanges(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  known: readonly string[],
  subscribe: (caller: Caller, input: object) => Promise<AsyncIterable<ServerSentEvent>>,
): Promise<void> {
  const query = await checkedQuery(context.identify, req.url ?? '', {
    lists: new Set(),
    inQuery: null,
    known: new Set(known),
  })
  const events = await subscribe(createCaller(context), query)
  if (req.method !== 'HEAD') return writeEvents(res, oneByOne(events), () => false)
  await events[Symbol.asyncIterator]().return?.()
  res.writeHead(200, EVENT_STREAM).end()
}

async function* oneByOne(events: AsyncIterable<ServerSentEvent>) {
  for await (const event of events) yield [event]
}

async function* numbered(batches: AsyncIterable<readonly ChatEvent[]>) {
  for await (const events of batches) yield events.map(({ id: seq, event, data }) => ({ seq, event, data }))
}

/** The subscription `events.follow` as the documented stream. It ends with the connection. */
async function sendFeed(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  await checkQuery(context, req.url ?? '', ['since', 'types'])
  const { searchParams } = new URL(req.url ?? '/', 'http://localhost')
  const [since, types] = ['since', 'types'].map((name) => searchParams.get(name) ?? undefined)
  const lastEventId = req.headers['last-event-id'] || undefined
  const events = await createCaller(context).events.follow({ since, types, lastEventId } as never)
  if (req.method !== 'HEAD') return writeEvents(res, named(feedBatchesOf(events)), () => false)
  await events[Symbol.asyncIterator]().return?.()
  res.writeHead(200, EVENT_STREAM).end()
}

async function* named(batches: AsyncIterable<readonly FeedEvent[]>) {
  for await (const events of batches)
    yield events.map(({ id: seq, event: { type: event, ...data } }) => ({ seq, event, data }))
}

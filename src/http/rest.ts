import type { IncomingMessage, ServerResponse } from 'node:http'
import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { UploadFile } from '../client/schema.ts'
import { AppError, methodNotAllowed } from '../errors.ts'
import { type ExecutionRow, isTerminal } from '../executions/engine/events/events.ts'
import { followFrom } from '../executions/follow.ts'
import type { Execute } from '../executions/schema.ts'
import { cancelIfActive } from '../executions/service.ts'
import { type IdempotencyKey, readKey } from '../idempotency.ts'
import type { Context } from '../trpc.ts'
import { fromTRPCError } from '../trpc-errors.ts'
import { exportAudit } from './audit.ts'
import { hasBody, readJson, sendJson } from './body.ts'
import { callOnce, sendTagged, tagged } from './conditional.ts'
import { download, upload, uploadToSpace } from './media.ts'
import { noSuchPath } from './no-such-path.ts'
import { AUDIT_EXPORT_PATH, CONTENT_PATH, MEDIA_PATH, patternOf, SPACE_UPLOAD_PATH } from './paths.ts'
import { findRoute, isChange, methodsAt, type Route, takesKey } from './routes.ts'
import { writeEvents } from './sse.ts'
import { findStream, isStreamPath, sendStream } from './streams.ts'
import { checkQuery, explainByFields, isAdded, refuseParameter, unknownFields, warningsOf } from './unknown-names.ts'

const MEDIA_CONTENT = patternOf(CONTENT_PATH)
const MEDIA = patternOf(MEDIA_PATH)
const AUDIT_EXPORT = patternOf(AUDIT_EXPORT_PATH)
const SPACE_UPLOAD = patternOf(SPACE_UPLOAD_PATH)
const isUploadPath = (path: string) => MEDIA.test(path) || SPACE_UPLOAD.test(path)

/** A time whose offset has a plus that the client did not encode, and that therefore arrives as a space. */
const UNESCAPED = /^(\d{4}-\d\d-\d\dT[\d:.]{5,20}) (\d\d:\d\d)$/

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
    const values = parameters.getAll(name).map((value) => value.replace(UNESCAPED, '$1+$2'))
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

/**
 * Decodes characters that need no encoding: `%41` equals `A` (RFC 3986, 6.2.2.2), and the colon, which clients encode
 * in names of providers. Ids and names contain no others.
 */
function decodePlain(path: string): string {
  if (!path.includes('%')) return path
  return path.replace(/%([2-7][0-9a-f])/gi, (encoded, hex: string) => {
    const character = String.fromCharCode(Number.parseInt(hex, 16))
    return /[\w.~:-]/.test(character) ? character : encoded
  })
}

/** Handles REST: every procedure with a `restMeta(…)`, and the streams. Throws errors for the error body. */
export async function handleRest(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const path = decodePlain((req.url ?? '').split('?', 1)[0] ?? '')
  // Node sends no body in answer to a HEAD.
  const method = req.method === 'HEAD' ? 'GET' : (req.method ?? '')
  if (method === 'GET') {
    const stream = findStream(path, req.headers)
    if (stream) return sendStream(context, req, res, stream)
    const [, mediaId] = MEDIA_CONTENT.exec(path) ?? []
    if (mediaId) {
      await checkQuery(context, req.url ?? '', [])
      return download(context, req, res, mediaId)
    }
    if (AUDIT_EXPORT.test(path)) return exportAudit(context, req, res)
  }
  const request = { context, req, res, path, method }
  const found = findRoute(method, path)
  if (found) return callRoute(request, found)
  if (method === 'POST' && isUploadPath(path)) return storeUpload(request)
  throw refuseMethod(path)
}

type RestRequest = { context: Context; req: IncomingMessage; res: ServerResponse; path: string; method: string }

/** Reads the Idempotency-Key of a write, after its caller was admitted. Returns null without one. */
async function readIdempotency({ req, path, method }: RestRequest, admit: () => Promise<unknown>) {
  const key = takesKey(method) ? req.headers['idempotency-key'] : undefined
  if (key === undefined) return null
  await admit()
  return readKey(String(key), method, path)
}

/** Tells the client that it gets the first answer to its Idempotency-Key, which may be an error. */
function markReplay(res: ServerResponse, idempotency: IdempotencyKey | null): void {
  if (idempotency?.replayed) res.setHeader('Idempotent-Replayed', 'true')
}

/** Stores an uploaded file, in the media or in a space, and answers with it. */
async function storeUpload(request: RestRequest): Promise<void> {
  const { context, req, res, path } = request
  const { identify } = context
  const idempotency = await readIdempotency(request, identify)
  const url = req.url ?? ''
  const created = MEDIA.test(path)
    ? await checkQuery(context, url, []).then(() => upload(context, req, idempotency))
    : await uploadToSpace(context, req, await checkedQuery(identify, url, UPLOAD_QUERY), idempotency)
  markReplay(res, idempotency)
  sendJson(res, 200, created)
}

type Found = NonNullable<ReturnType<typeof findRoute>>

/** Calls the procedure of a route, and answers with its output or with the stream of the run that it started. */
async function callRoute(request: RestRequest, found: Found): Promise<void> {
  const { context, req, res, path, method } = request
  const { route, parameters } = found
  const admit = () => route.admit(context)
  const idempotency = await readIdempotency(request, admit)
  const query = await checkedQuery(admit, req.url ?? '', route)
  // Authenticates before it reads the body. Query and path win over the body: `onDisconnect` may be in both.
  const body = hasBody(req) && method !== 'GET' ? await admit().then(() => readJson(req)) : {}
  const input: Record<string, unknown> = { ...body, ...query, ...parameters, ...(route.isStream && { stream: true }) }
  const unknown = unknownFields(body, route.known)
  const warnings = unknown.length ? warningsOf(unknown) : null
  // An error has the number, too.
  if (warnings) res.setHeader('X-Muster-Warnings', String(warnings.length))
  let accepted: Accepted | undefined
  const onAccepted = (row: ExecutionRow, actor: Actor) => {
    accepted = { row, actor }
    // An error also names its execution.
    res.setHeader('X-Execution-Id', row.id)
  }
  const ifMatch = isChange(method) ? req.headers['if-match'] : undefined
  const call = { route, path, parameters, input, idempotency, ifMatch }
  const answer = await callOnce(context, { ...call, onAccepted: route.canStream ? onAccepted : null })
    .catch((error: unknown) => {
      throw explainByFields(fromTRPCError(error), unknown, route.known ?? [])
    })
    .finally(() => markReplay(res, idempotency))
  if (accepted && input.stream === true) return streamRun(context, res, accepted, input as StreamOptions)
  if (route.isSingle) return sendTagged(req, res, await tagged(route, answer as object))
  sendWithWarnings(res, answer as object, warnings)
}

/** Sends an answer with warnings beside its own, and their number as a header. */
function sendWithWarnings(
  res: ServerResponse,
  answer: object & { warnings?: unknown },
  warnings: readonly string[] | null,
): void {
  const own = Array.isArray(answer.warnings) ? answer.warnings : []
  const all = warnings ? [...own, ...warnings] : own
  const count = all.filter((warning) => typeof warning === 'string').length
  if (count) res.setHeader('X-Muster-Warnings', String(count))
  sendJson(res, 200, warnings ? { ...answer, warnings: all } : answer)
}

/** Returns the 405 of a path with other methods, or the 404 of an unknown path. */
function refuseMethod(path: string): Error {
  const isRead = isStreamPath(path) || MEDIA_CONTENT.test(path) || AUDIT_EXPORT.test(path)
  const methods = [...methodsAt(path), ...(isRead ? ['GET'] : []), ...(isUploadPath(path) ? ['POST'] : [])]
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
  const written = writeEvents(res, followFrom(actor, deps, row, { after: 0, streamTo, content }), isTerminal)
  // Stays synchronous, because most streams have nothing to wait for afterwards.
  if (onDisconnect !== 'cancel') return written
  return written.then(async () => {
    // A stream without access was ended by the server, not by a disconnect.
    if (res.closed) await cancelIfActive(actor, deps, row.id)
  })
}

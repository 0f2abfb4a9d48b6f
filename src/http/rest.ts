import type { IncomingMessage, ServerResponse } from 'node:http'
import { createOpenApiNodeHttpHandler } from 'trpc-to-openapi'
import { noSuchPath } from '../errors.ts'
import { readKey } from '../idempotency.ts'
import { appRouter, createCaller } from '../router.ts'
import { actorAt, type Context, fromTRPCError } from '../trpc.ts'
import { hasBody, readJson } from './body.ts'
import { download, upload } from './media.ts'
import { type ServerSentEvent, writeEvents } from './sse.ts'

const EVENTS = /^\/api\/v1\/executions\/([\w-]+)\/events\/?$/i
const MEDIA_CONTENT = /^\/api\/v1\/media\/([\w-]+)\/content\/?$/i
const MEDIA = /^\/api\/v1\/media\/?$/i
const EXECUTE = /^\/api\/(v1\/agents\/[\w-]+|agent)\/execute\/?$/i

/** One REST request on its way through trpc-to-openapi. */
type Call = {
  context: Context
  /** What a DELETE says in its body; trpc-to-openapi takes its input from the query alone. */
  deleted: Record<string, unknown>
  /** Of POST, PATCH and PUT, once the procedure is found: who asks comes before what they say. */
  body?: Promise<Record<string, unknown>>
  error?: unknown
  answer?: string
}

/**
 * trpc-to-openapi finds the procedure and calls it; what it gets wrong is kept from it here. Its own body parser takes
 * one content type only and reads `null` as `{}`, its query parser fails on `?constructor=`, it leaves path parameters
 * encoded, answers HEAD to any path, and its error body is not ours: it is handed a fetch Request (by prototype) that
 * has a parsed body and query, and a response that only keeps the text; its errors are taken from `onError`.
 */
const dispatch = createOpenApiNodeHttpHandler({
  router: appRouter,
  createContext: (({ req }: { req: ShimRequest }) => req.call.context) as never,
  onError: (({ error, req }: { error: unknown; req: ShimRequest }) => {
    req.call.error = error
  }) as never,
}) as unknown as (req: ShimRequest, res: ShimResponse) => Promise<void>

type ShimRequest = Request & { call: Call }
type ShimResponse = { statusCode: number; setHeader: () => void; end: (text: string) => void }

const JSON_TYPE = new Headers({ 'content-type': 'application/json' })

function shimRequest(call: Call, req: IncomingMessage): ShimRequest {
  const { pathname, searchParams } = new URL(req.url ?? '/', 'http://localhost')
  const query: Record<string, string[]> = Object.create(null)
  for (const key of searchParams.keys()) query[key] = searchParams.getAll(key)
  const get = (value: unknown) => ({ value })
  return Object.create(Request.prototype, {
    call: get(call),
    method: get(req.method),
    url: get(decodeUnreserved(pathname)),
    headers: get(JSON_TYPE),
    query: get({ ...query, ...call.deleted }),
    signal: get(call.context.signal),
    body: {
      get: () => {
        call.body ??= call.context.identify().then(() => readBody(req, query))
        return call.body
      },
    },
  })
}

/** The body, and what the address says, which beats it: a file's path stands there, and `onDisconnect` may. */
async function readBody(req: IncomingMessage, query: Record<string, string[]>): Promise<Record<string, unknown>> {
  const body = await readJson(req)
  return { ...body, ...Object.fromEntries(Object.entries(query).map(([name, [first]]) => [name, first])) }
}

/** `%41` is `A` (RFC 3986, 6.2.2.2). Ids have unreserved characters only, so that nothing else needs decoding. */
const decodeUnreserved = (path: string): string =>
  path.replace(/%([2-7][0-9a-f])/gi, (encoded, hex: string) => {
    const character = String.fromCharCode(Number.parseInt(hex, 16))
    return /[\w.~-]/.test(character) ? character : encoded
  })

/** The REST face: every procedure with a `rest(…)` meta, and the two streams. Throws what the error body says. */
export async function handleRest(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const path = decodeUnreserved((req.url ?? '').split('?', 1)[0] ?? '')
  const [, executionId] = EVENTS.exec(path) ?? []
  if (executionId && req.method === 'GET') return sendEvents(context, req, res, executionId)
  const [, mediaId] = MEDIA_CONTENT.exec(path) ?? []
  if (mediaId && req.method === 'GET') return download(context, res, mediaId)
  if (req.method === 'HEAD') throw noSuchPath()

  const key = req.method === 'POST' ? req.headers['idempotency-key'] : undefined
  if (key !== undefined) await context.identify()
  const idempotency = key === undefined ? null : readKey(String(key), path.replace(/\/$/, ''))
  const deleted = req.method === 'DELETE' && hasBody(req) ? await context.identify().then(() => readJson(req)) : {}
  if (req.method === 'POST' && MEDIA.test(path)) {
    const created = await upload(context, req, idempotency)
    if (idempotency?.replayed) res.setHeader('Idempotent-Replayed', 'true')
    return sendText(res, JSON.stringify(created))
  }
  const call: Call = { context: { ...context, idempotency }, deleted }
  const keep = (text: string) => {
    call.answer = text
  }
  await dispatch(shimRequest(call, req), { statusCode: 200, setHeader() {}, end: keep })
  // An error, too, can be the first answer: that of a cancelled run.
  if (idempotency?.replayed) res.setHeader('Idempotent-Replayed', 'true')
  if (call.error) throw fromTRPCError(call.error)
  const body = await call.body
  if (EXECUTE.test(path) && body?.stream === true) {
    const { executionId: id } = JSON.parse(call.answer ?? '')
    const here = { ...context, authenticate: () => actorAt(context, 'spaceId', body) }
    await sendEvents(here, req, res, id)
    if (body.onDisconnect === 'cancel' && context.signal.aborted) await cancelLeft(here, id)
    return
  }
  sendText(res, call.answer ?? '')
}

function sendText(res: ServerResponse, json: string): void {
  const answer = Buffer.from(json)
  res.writeHead(200, { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': answer.length })
  res.end(answer)
}

/** The caller has gone, and did not want the run to go on without them; it may have ended already. */
async function cancelLeft(context: Context, id: string): Promise<void> {
  await createCaller(context)
    .executions.cancel({ id })
    .catch(() => {})
}

/** The subscription `executions.events` as the documented stream. */
async function sendEvents(context: Context, req: IncomingMessage, res: ServerResponse, executionId: string) {
  const { searchParams } = new URL(req.url ?? '/', 'http://localhost')
  const after = searchParams.get('after') ?? undefined
  const input = { executionId, after, lastEventId: req.headers['last-event-id'] } as never
  const events = await createCaller(context).executions.events(input)
  await writeEvents(res, untracked(events))
}

/** A caller gets what the procedure yields: tRPC's `tracked` envelopes, though their type says otherwise. */
async function* untracked(events: AsyncIterable<unknown>): AsyncGenerator<ServerSentEvent> {
  for await (const [, event] of events as AsyncIterable<[id: string, event: ServerSentEvent]>) yield event
}

import type { IncomingMessage, ServerResponse } from 'node:http'
import { A2A_VERSION_HEADER } from '@a2a-js/sdk'
import { LegacyJsonRpcTransportHandler } from '@a2a-js/sdk/compat/v0_3/server'
import { RequestMalformedError } from '@a2a-js/sdk/errors'
import { JsonRpcTransportHandler, ServerCallContext, validateVersion } from '@a2a-js/sdk/server'
import { findCached } from '../../agents/agent-cache.ts'
import { requireScope } from '../../auth/actor.ts'
import { AppError, textOf, toAppError } from '../../errors.ts'
import { readJson, sendJson } from '../../http/body.ts'
import { checkInput } from '../../lib/fields.ts'
import { asObject, isObject } from '../../lib/unknown.ts'
import { type Context, recheck } from '../../trpc.ts'
import type { ErrorBody } from '../../wire.ts'
import type { RouteMatch } from '../doors.ts'
import { findAgent } from '../shared/agents.ts'
import { enter, readWhole, scopesOf } from '../shared/enter.ts'
import { frame, writeFrames } from '../shared/frames.ts'
import { sendRefusal } from '../shared/json-rpc.ts'
import { cardOf, toJson } from './card.ts'
import { createHandler } from './handler.ts'

/** Methods that start a run, of both versions. */
const SENDS: ReadonlySet<unknown> = new Set(['SendMessage', 'SendStreamingMessage', 'message/send', 'message/stream'])

/** Methods that set and delete push notifications, of both versions. */
const PUSH_CHANGES: ReadonlySet<unknown> = new Set([
  'CreateTaskPushNotificationConfig',
  'DeleteTaskPushNotificationConfig',
  'tasks/pushNotificationConfig/set',
  'tasks/pushNotificationConfig/delete',
])

/** Methods that read tasks, of both versions. */
const READS: ReadonlySet<unknown> = new Set(['GetTask', 'ListTasks', 'tasks/get'])

/** Methods of version 0.3 whose answer is a stream. */
const STREAMS: ReadonlySet<unknown> = new Set(['message/stream', 'tasks/resubscribe'])

/** Returns whether a client names a stream, and not JSON, as the type that it reads. */
const wantsStream = ({ headers: { accept = '' } }: IncomingMessage): boolean =>
  accept.includes('text/event-stream') && !accept.includes('application/json')

/**
 * Serves an agent by the Agent2Agent protocol (contract-2.md section 6.4): its card, and JSON-RPC for clients of
 * versions 1.0 and 0.3. Throws the refusals of the card; those of JSON-RPC have its form.
 */
export async function handle(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  match: RouteMatch,
): Promise<void> {
  const { deps } = context
  const [wanted = ''] = match.parameters
  if (match.route.path.endsWith('.json')) {
    scopesOf(req, match)
    const isOpen = deps.settings.PUBLIC_DIRECTORY && req.headers.authorization === undefined
    const listed = isOpen && (await findCached(deps, wanted, { visibility: 'public', archivedAt: null }))
    const agent = listed || (await findAgent(await enter(context, req, match), deps, wanted))
    res.appendHeader('Vary', 'User-Agent, A2A-Version')
    return sendJson(res, 200, toJson(cardOf(deps.settings, agent), req.headers))
  }
  try {
    await answer(context, req, res, match)
  } catch (thrown) {
    const error = toAppError(thrown)
    sendRefusal(context, res, error, { dataOf, ...(error.status === 415 && { code: -32005 }) })
  }
}

/** Returns the data of an error, which is a list of typed objects since version 1.0. */
const dataOf = ({ code, requestId }: ErrorBody) => [
  {
    '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
    reason: code.toUpperCase(),
    domain: 'muster',
    metadata: { requestId },
  },
]

async function answer(context: Context, req: IncomingMessage, res: ServerResponse, match: RouteMatch): Promise<void> {
  const { deps } = context
  const [wanted = ''] = match.parameters
  const actor = await enter(context, req, match)
  const agent = await findAgent(actor, deps, wanted)
  const request = await readRequest(req)
  await recheck(context, actor)
  if (request.refusal) return sendJson(res, 200, request.refusal)
  const { body } = request
  if (SENDS.has(body.method)) requireScope(actor, 'agents:execute')
  if (PUSH_CHANGES.has(body.method)) requireScope(actor, 'executions:write', 'agents:execute')

  const requestedVersion = versionOf(req, body.method)
  const isLegacy = requestedVersion === '0.3'
  const { counting, throwIfRefused } = keepRefusal(context)
  // The whole answer has a turn, not the parts that procedures read.
  const handler = createHandler({ ...counting, readInTurn: null }, actor, agent)
  const { id = null } = body
  const toError = (error: unknown) => ({
    jsonrpc: '2.0',
    id,
    error: isLegacy
      ? LegacyJsonRpcTransportHandler.mapToLegacyJSONRPCError(error)
      : JsonRpcTransportHandler.mapToJSONRPCError(error),
  })
  // The libraries of version 0.3 fail at JSON where they expect a stream, and do not show it.
  const isInStream = isLegacy && STREAMS.has(body.method) && wantsStream(req)
  const send = async (answer: object) => (isInStream ? writeFrames(res, [frame(answer)]) : sendJson(res, 200, answer))
  try {
    checkShape(body)
    validateVersion(requestedVersion, cardOf(deps.settings, agent), 'JSONRPC')
    const transport = isLegacy ? new LegacyJsonRpcTransportHandler(handler) : new JsonRpcTransportHandler(handler)
    const handle = () => transport.handle(body, new ServerCallContext({ requestedVersion }))
    const answered = await (READS.has(body.method) ? readWhole(context, actor, handle) : handle())
    throwIfRefused()
    if (!(Symbol.asyncIterator in answered)) return await send(answered)
    const events = answered[Symbol.asyncIterator]()
    // An error before the first event is a plain answer.
    const first = await events.next()
    throwIfRefused()
    const onError = (error: unknown) => frame(toError(error))
    return await writeFrames(res, toFrames(first, events), { onError })
  } catch (error) {
    if (res.headersSent) throw error
    throwIfRefused()
    await send(toError(error))
  }
}

const isRateLimit = (error: unknown): boolean => error instanceof AppError && error.status === 429

/**
 * Returns a context that keeps the refusal of a run beyond its rate limit, and a function that throws this. The SDK would
 * answer with the status 200, which HTTP clients do not repeat later.
 */
function keepRefusal(context: Context): { counting: Context; throwIfRefused: () => void } {
  let refusal: unknown = null
  const countRun: Context['countRun'] = async (actor) => {
    try {
      await context.countRun?.(actor)
    } catch (error) {
      if (isRateLimit(error)) refusal = error
      throw error
    }
  }
  return {
    counting: { ...context, countRun },
    throwIfRefused: () => {
      if (refusal !== null) throw refusal
    },
  }
}

/** Reads a request of JSON-RPC, or returns JSON-RPC's error for a body that is none. Throws 413 and 415. */
async function readRequest(
  req: IncomingMessage,
): Promise<{ body: Record<string, unknown>; refusal: null } | { refusal: object }> {
  const refuse = (code: number, message: string, id: unknown = null) => ({
    refusal: { jsonrpc: '2.0', id, error: { code, message } },
  })
  try {
    const body = await readJson(req)
    checkInput(body)
    const { jsonrpc, id = null, method } = body
    const isId = id === null || typeof id === 'string' || typeof id === 'number'
    if (jsonrpc === '2.0' && typeof method === 'string' && isId) return { body: withKinds(body), refusal: null }
    return refuse(-32600, 'Invalid request: send jsonrpc "2.0", a method, and an id', isId ? id : null)
  } catch (error) {
    if (!(error instanceof AppError) || error.status !== 400) throw error
    return refuse(error.message.startsWith('Invalid JSON') ? -32700 : -32600, textOf(error))
  }
}

/**
 * Returns the version of a request. Clients that send no header mean 0.3, unless the method has a name of 1.0. A patch
 * number is ignored.
 */
function versionOf(req: IncomingMessage, method: unknown): string {
  const header = String(req.headers[A2A_VERSION_HEADER.toLowerCase()] ?? '')
  if (!header) return typeof method === 'string' && /^[A-Z]/.test(method) ? '1.0' : '0.3'
  return header.replace(/^(\d+\.\d+)\.\d+$/, '$1')
}

/** Names the kinds of parts, which versions before 0.3 call types. */
function withKinds(body: Record<string, unknown>): Record<string, unknown> {
  const params = asObject(body.params)
  const message = asObject(params.message)
  if (!Array.isArray(message.parts)) return body
  const parts = message.parts.map((part) =>
    isObject(part) && part.kind === undefined && typeof part.type === 'string' ? { ...part, kind: part.type } : part,
  )
  return { ...body, params: { ...params, message: { ...message, parts } } }
}

/** Throws RequestMalformedError for fields that the package converts without a look at their types. */
function checkShape({ method, params }: Record<string, unknown>): void {
  const { message, configuration, pushNotificationConfig } = asObject(params)
  const { parts } = asObject(message)
  if (Array.isArray(parts) && !parts.every(isReadable))
    throw new RequestMalformedError('Invalid message: parts are objects, and a file has its bytes as a text in base64')
  const { acceptedOutputModes = null } = asObject(configuration)
  if (acceptedOutputModes !== null && !Array.isArray(acceptedOutputModes))
    throw new RequestMalformedError('Invalid configuration: acceptedOutputModes are a list')
  if (method === 'tasks/pushNotificationConfig/set' && !isObject(pushNotificationConfig))
    throw new RequestMalformedError('Missing required field: pushNotificationConfig')
}

function isReadable(part: unknown): boolean {
  if (!isObject(part)) return false
  const { kind, file, raw = '' } = part
  // Version 0.3 has the file in an object, version 1.0 its bytes in the part.
  if (kind === 'file') return isObject(file) && (!('bytes' in file) || typeof file.bytes === 'string')
  return raw === null || typeof raw === 'string'
}

async function* toFrames(
  first: IteratorResult<object, void>,
  rest: AsyncIterator<object, void>,
): AsyncGenerator<string> {
  try {
    for (let event = first; !event.done; event = await rest.next()) yield frame(event.value)
  } finally {
    await rest.return?.()
  }
}

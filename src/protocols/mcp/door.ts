import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createMcpHandler, ProtocolErrorCode, specTypeSchemas } from '@modelcontextprotocol/server'
import { AppError, invalidJson, lacksScopes, toAppError, unsupportedType } from '../../errors.ts'
import { isJson, readBody, sendJson } from '../../http/body.ts'
import { abortedByClose } from '../../http/context.ts'
import { parseJson } from '../../lib/json.ts'
import { asObject, isObject, withoutNull } from '../../lib/unknown.ts'
import { publicAddress, type Settings } from '../../settings.ts'
import { asRequested, type Context, recheck } from '../../trpc.ts'
import type { RouteMatch } from '../doors.ts'
import { findAgent } from '../shared/agents.ts'
import { sendRefusal } from '../shared/json-rpc.ts'
import { checkOrigin, toJson, toRequest, wantsJson, writeResponse } from './http.ts'
import { createNotices } from './notices.ts'
import { createServer, type McpRequest } from './server.ts'
import { agentTools, mayUse, type Tool, toolsByName } from './tools.ts'

/** Maximum size of a request (bytes): a file of 1 MiB in base64, and its fields. */
const MAX_BODY = 4 * 1024 * 1024

/**
 * Serves the MCP server (contract-2.md section 6.1) at `/mcp`, and one agent at `/mcp/agents/{id}`. Clients of revision
 * 2026-07-28 and those with `initialize` use the same address, and neither has a session. Refuses requests with 401,
 * 403, 404, 413, 415 and 429.
 */
export async function handle(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  match: RouteMatch,
): Promise<void> {
  try {
    await answer(context, req, res, match)
  } catch (thrown) {
    sendRefusal(context, res, withMetadata(context.deps.settings, toAppError(thrown)))
  }
}

/** Adds the address of the metadata to a challenge, where there is an authorization server (RFC 9728, 5.1). */
function withMetadata(settings: Settings, error: AppError): AppError {
  const challenge = error.headers['WWW-Authenticate']
  if (!challenge || !settings.MCP_AUTHORIZATION_SERVER) return error
  const metadata = `resource_metadata="${publicAddress(settings)}/.well-known/oauth-protected-resource/mcp"`
  const header = `${challenge}${challenge === 'Bearer' ? ' ' : ', '}${metadata}`
  const { code, detail, headers, message, status } = error
  const options = { code, headers: { ...headers, 'WWW-Authenticate': header }, ...(detail !== undefined && { detail }) }
  return new AppError(status, message, options)
}

async function answer(context: Context, req: IncomingMessage, res: ServerResponse, match: RouteMatch): Promise<void> {
  const { deps } = context
  checkOrigin(deps.settings, req)
  const actor = asRequested(context, await context.authenticate())
  const [wanted] = match.parameters
  const agent = wanted === undefined ? undefined : await findAgent(actor, deps, wanted)
  const tools = agent ? agentTools(deps, agent) : toolsByName()
  const body = await readBody(req, MAX_BODY)
  if (body.length && !isJson(req)) throw unsupportedType()
  // The package would replace each wrong byte.
  if (!isUtf8(body)) throw invalidJson()
  await recheck(context, actor)
  const message = parse(body)
  // Clients of revision 2025-03-26 may send several messages at once. The request was counted as one.
  if (Array.isArray(message) && message.length > 1) await context.countCalls?.(actor, message.length - 1)
  const tool = toolOf({ tools, message })
  // So that a client can ask its user for the scopes.
  if (tool && !mayUse(actor, tool)) throw lacksScopes(tool.scopes)
  await serve({ context, actor, tools, agentId: agent?.id, message }, body, req, res)
}

/** Answers a request with the server that `create` makes. */
export async function serve(
  mcpRequest: McpRequest,
  body: Buffer,
  req: IncomingMessage,
  res: ServerResponse,
  create: typeof createServer = createServer,
): Promise<void> {
  const { actor, context } = mcpRequest
  const { deps, requestId } = context
  const handler = createMcpHandler(() => create(mcpRequest), {
    legacy: 'stateless',
    // Proxies end a silent request after a minute. A stream has a comment every 15 s.
    responseMode: toolOf(mcpRequest)?.waits ? 'sse' : 'auto',
    maxRequestBodySize: MAX_BODY,
    bus: createNotices(deps, actor),
    onerror: (error) => deps.log.debug({ requestId, err: error }, 'mcp request failed'),
  })
  const { message } = mcpRequest
  const mismatch = checkTaskName(req, message)
  if (mismatch) return sendJson(res, 400, mismatch)
  const mistake = checkParams(message)
  if (mistake) return sendJson(res, 200, mistake)
  const alive = answerPing(req, message)
  if (alive) return sendJson(res, 200, alive)
  // The stream of changes has no end of its own. A call that waits ends with an error once its caller loses access.
  const isEndless = asObject(message).method === 'subscriptions/listen'
  const signal = isEndless ? context.streamTo(actor) : abortedByClose(res).signal
  // The package reads a body only if it is no JSON.
  const request = toRequest(req, message === undefined ? body : null, signal)
  const response = await handler.fetch(request, { parsedBody: message })
  const isJson = wantsJson(req) && !isEndless
  await writeResponse(res, isJson ? await toJson(response) : response)
}

/**
 * Returns an error for a request about a task whose header names another one, or none (protocols.md section 1). The
 * package checks the other methods.
 */
function checkTaskName({ headers }: IncomingMessage, message: unknown): object | null {
  const {
    id = null,
    method,
    params,
  } = (message ?? {}) as { id?: unknown; method?: unknown; params?: { taskId?: unknown } }
  if (typeof method !== 'string' || !/^tasks\/(get|update|cancel)$/.test(method)) return null
  if (headers['mcp-name'] === String(params?.taskId)) return null
  const text = 'The header Mcp-Name must be the taskId of the request'
  return { jsonrpc: '2.0', id, error: { code: -32_020, message: text } }
}

/**
 * Returns the answer to a `ping` of a client of revision 2026-07-28, which has no such method, or null. The official
 * library for Go sends it still, without the parts that each request of that revision needs, and closes its connection
 * if it fails.
 */
function answerPing({ headers }: IncomingMessage, message: unknown): object | null {
  const { id, method } = asObject(message)
  if (method !== 'ping' || id === undefined || headers['mcp-protocol-version'] !== '2026-07-28') return null
  return { jsonrpc: '2.0', id, result: { resultType: 'complete' } }
}

/** Requests with required parameters, whose mistakes the package reports as its own. */
const WITH_PARAMS = new Map<unknown, keyof typeof specTypeSchemas>([
  ['initialize', 'InitializeRequest'],
  ['prompts/get', 'GetPromptRequest'],
  ['resources/read', 'ReadResourceRequest'],
  ['tools/call', 'CallToolRequest'],
])

/** Returns an error for a request with a missing or invalid parameter, or null. */
function checkParams(message: unknown): object | null {
  const { id = null, method } = asObject(message)
  const schema = WITH_PARAMS.get(method)
  const [issue] = (schema && specTypeSchemas[schema]['~standard'].validate(message).issues) ?? []
  if (!issue) return null
  return { jsonrpc: '2.0', id, error: { code: ProtocolErrorCode.InvalidParams, message: issue.message } }
}

/** Returns the message, or undefined for anything else than JSON, which the package refuses. */
function parse(body: Buffer): unknown {
  try {
    const message: unknown = JSON.parse(body.toString())
    return Array.isArray(message) ? message.map(withoutEmptyParams) : withoutEmptyParams(message)
  } catch {
    return undefined
  }
}

/**
 * Treats parameters that are null as absent, because clients in many languages send each field that they know. PHP
 * sends `[]` for an empty object. Clients that people write by hand leave parts of their greeting out.
 */
function withoutEmptyParams(message: unknown): unknown {
  if (!isObject(message) || message.params === undefined) return message
  const { params: given, ...fields } = message
  if (given === null) return fields
  const params = toObject(given)
  if (!isObject(params)) return message
  const { _meta: meta, arguments: input, capabilities, ...others } = withoutNull(params)
  const isGreeting = fields.method === 'initialize'
  const hasCapabilities = capabilities !== undefined || isGreeting
  return {
    ...fields,
    params: {
      ...others,
      ...(isGreeting && { clientInfo: { name: 'unknown', version: '', ...withoutNull(asObject(others.clientInfo)) } }),
      ...(hasCapabilities && { capabilities: toObject(capabilities ?? {}) }),
      ...(meta !== undefined && { _meta: isObject(meta) ? withoutNull(meta) : toObject(meta) }),
      ...(input !== undefined && { arguments: toObject(input) }),
    },
  }
}

/** Returns an object that a client has sent as `[]`, as JSON in a text, or as an empty text. */
function toObject(given: unknown): unknown {
  if (Array.isArray(given) && !given.length) return {}
  if (typeof given !== 'string') return given
  const parsed = given.trim() ? parseJson(given) : {}
  return isObject(parsed) ? parsed : given
}

/** Returns the tool that a message calls. */
function toolOf({ tools, message }: Pick<McpRequest, 'tools' | 'message'>): Tool | undefined {
  const { method, params } = asObject(message)
  return method === 'tools/call' ? tools.get(String(asObject(params).name)) : undefined
}

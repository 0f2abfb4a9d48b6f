import type { Actor } from '../auth/actor.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { AppError, conflict, paused } from '../errors.ts'
import { AuthorizationNeeded } from '../executions/engine/run/abort.ts'
import { createProxyFor } from '../lib/net/proxies.ts'
import { createQueues } from '../lib/queues.ts'
import {
  fillIn,
  fillUrl,
  formsOf,
  isNotSent,
  mentionsIn,
  resolveSecrets,
  SecretNotAllowed,
} from '../secrets/resolve.ts'
import type { McpClient } from './client/client.ts'
import type { IsWanted } from './client/listing.ts'
import { UnreachableServer } from './client/unreachable.ts'
import { readCredentials } from './credentials.ts'
import { secretsOf } from './declared-secrets.ts'
import { bearerFor, type ConnectionDeps } from './oauth/connections.ts'
import { find, headersOf, isDeclared } from './rows.ts'

/**
 * Maximum number of concurrent tool listings per organization and process, because reading a server's answer is
 * expensive.
 */
const MAX_LISTINGS = 4
const inTurn = createQueues(MAX_LISTINGS)

/** GET /mcps/{id}/tools: connects and lists the tools, in turn. Throws a 502 with the reason if that fails. */
export const listTools = (actor: Actor, deps: Deps, id: string, signal: AbortSignal) =>
  inTurn(actor.organizationId, signal, async () => {
    const row = await find(actor, deps, id)
    if (deps.pause.isPaused()) throw paused()
    const client = await connect(deps, row, signal, { ...NO_RUN, userId: actor.userId }).catch((error: unknown) => {
      signal.throwIfAborted()
      if (error instanceof AuthorizationNeeded) throw notConnected(row)
      const reason = unreachableReason(error)
      deps.log.warn({ mcpId: row.id, reason, err: error }, 'failed to use an MCP server')
      throw new AppError(502, 'MCP server unreachable', {
        code: error instanceof SecretNotAllowed ? 'secret_not_allowed' : 'mcp_unreachable',
        detail: `The MCP server ${row.name} cannot be used: ${publicReason(error)}`,
      })
    })
    const { tools } = client
    await client.close()
    return { tools: [...tools] }
  })

const notConnected = ({ name }: { name: string }) =>
  conflict('You are not connected to this MCP server', {
    detail: `Connect to the MCP server ${name} first: POST /api/v1/mcps/{id}/connect, or in the console under MCP servers.`,
  })

/** Returns the public reason why a server cannot be used. Other errors are only logged. */
export const unreachableReason = (error: unknown): string =>
  isNotSent(error) || error instanceof UnreachableServer ? error.message : 'the connection failed'

/** Returns that reason with the words of the server, which the log omits. */
export const publicReason = (error: unknown): string =>
  error instanceof UnreachableServer ? error.messageForPeople : unreachableReason(error)

export type ConnectDeps = ConnectionDeps & Pick<Deps, 'operatorServers'>

type ServerRow = Prisma.McpServerGetPayload<object>

/**
 * The user that a connection is for; and of a run, its space, whether its agent belongs to another organization, and
 * the tools that it may use.
 */
export type ConnectFor = { userId: string; spaceId: string | null; isForeign: boolean; isWanted?: IsWanted }

const NO_RUN = { spaceId: null, isForeign: false }

/**
 * Connects to a server with its credentials filled in, or with the user's token. Throws the signal's reason, an
 * {@link AuthorizationNeeded} if the user must connect first, or an error that states why the server cannot be reached.
 */
export async function connect(
  deps: ConnectDeps,
  row: ServerRow,
  signal: AbortSignal,
  { userId, isWanted, ...run }: ConnectFor,
): Promise<McpClient> {
  const declared = isDeclared(row) ? await deps.operatorServers.find(row.id) : null
  if (declared?.kind === 'program')
    return deps.operatorServers.connect(row.id, declared, { spaceId: run.spaceId, isWanted }, signal)
  const {
    url: stored,
    headers: templates,
    transport,
  } = declared ?? { ...row, headers: row.auth === 'none' ? {} : headersOf(row) }
  // Imported on demand, because the import would dominate the start-up time.
  const [{ connectMcp }, credentials] = await Promise.all([
    import('./client/client.ts'),
    declared || row.auth === 'none' ? new Map<string, string>() : readCredentials(deps, row),
  ])
  const address = new URL(stored)
  const mentioned = mentionsIn([address.pathname, address.search, ...Object.values(templates)])
  const others = mentioned.filter((name) => !credentials.has(name))
  const { organizationId } = row
  // A member who tightened the permissions of a declared server did not write its address and headers.
  const writtenBy = declared ? null : row.writtenBy
  const use = { organizationId, writtenBy, url: address, ...run }
  const found = others.length ? await resolveSecrets(deps, use, others) : new Map<string, string>()
  const values = new Map([...found, ...credentials])
  const headers = new Headers([...credentials].filter(([name]) => !mentioned.includes(name)))
  for (const [name, template] of Object.entries(templates)) headers.set(name, headerOf(template, values))
  const url = mentioned.length ? fillUrl(address, values).href : stored
  const { ALLOW_PRIVATE_NETWORK, TOOL_TIMEOUT: toolTimeout } = deps.settings
  const secrets = [...formsOf(values.values()), ...(declared ? secretsOf(declared) : [])]
  const onFailure = (tool: string, reason: string) =>
    deps.log.warn({ mcpId: row.id, tool, reason }, 'a call to an MCP server failed')
  const proxyFor = createProxyFor(deps.settings)
  // Addresses that the operator sets may be private, but no other address that they lead to.
  const leads = { allowPrivate: ALLOW_PRIVATE_NETWORK || declared !== null, staysOnOrigin: declared !== null }
  const bearer = await bearerFor(deps, row, userId, signal)
  const mayRedirect = !others.length
  return connectMcp(
    { url, transport, headers, bearer, ...leads, proxyFor, toolTimeout, secrets, isWanted, onFailure, mayRedirect },
    signal,
  )
}

/** Returns a header's value with secrets in it. A value that no header can have is refused without repeating it. */
function headerOf(template: string, values: ReadonlyMap<string, string>): string {
  const value = fillIn(template, values)
  if (/^[\t\x20-\x7e]*$/.test(value)) return value
  const names = mentionsIn([template]).join(', ')
  throw new SecretNotAllowed(
    `The secret ${names} has a line break or another character that no header can contain: set it again without`,
  )
}

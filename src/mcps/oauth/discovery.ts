import {
  type AuthorizationServerMetadata,
  checkResourceAllowed,
  discoverAuthorizationServerMetadata,
  discoverOAuthProtectedResourceMetadata,
  type FetchLike,
  IssuerMismatchError,
  type OAuthMetadata,
  resourceUrlFromServerUrl,
} from '@modelcontextprotocol/client'
import { cleaner } from '../client/content.ts'
import { causeIn } from '../client/reasons.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'
import { type Issuers, readChallenge, withSchemeOf } from './mend-answer.ts'
import { joinScopes, MAX_SCOPE } from './scope.ts'

/** The MCP server whose authorization server is searched for. */
export type DiscoverableServer = { url: string; transport: string }

/** The authorization server of an MCP server. */
export type Issuer = {
  issuer: string
  /** Absent for a server without metadata, whose endpoints have fixed paths. */
  metadata?: OAuthMetadata
  /** The resource that tokens are for (RFC 8707). Absent for a server that has refused it. */
  resource?: string
}

/** An {@link Issuer} with the scope that its MCP server asks for. */
export type Discovered = Issuer & { scope: string | undefined }

/** Requests to the MCP server, and those to authorization servers, whose answers are mended. */
type Ways = { send: FetchLike; fetch: FetchLike; issuers: Issuers }
type Reading = Pick<Ways, 'fetch' | 'issuers'>

/**
 * Finds the authorization server of an MCP server: by the challenge of the MCP server, or else at well-known addresses.
 */
export async function discover(mcp: DiscoverableServer, { send, fetch, issuers }: Ways): Promise<Discovered> {
  const { url } = mcp
  const { resourceMetadataUrl, scope } = await challenge(mcp, send)
  const found = await serverOf(url, resourceMetadataUrl, { fetch: withAppended(fetch), issuers })
  const { authorizationServerMetadata: metadata, authorizationServerUrl, resourceMetadata } = found
  const requestedResource = resourceUrlFromServerUrl(url)
  const resource = resourceMetadata?.resource ?? requestedResource.href
  const configuredResource = withSchemeOf(requestedResource, resource)
  const isOwn = configuredResource === `${requestedResource.href}/`
  if (!isOwn && !checkResourceAllowed({ requestedResource, configuredResource })) {
    throw new AuthorizationProblem('the MCP server names a resource that is not its own address')
  }
  if (resourceMetadata?.authorization_servers?.length && !metadata) {
    throw new AuthorizationProblem('the authorization server has no metadata at its well-known addresses')
  }
  const wanted = scope ?? resourceMetadata?.scopes_supported?.join(' ')
  const offline = wanted && metadata?.scopes_supported?.includes('offline_access') ? 'offline_access' : undefined
  const stated = metadata && (issuers.get(metadata.issuer) ?? metadata)
  const issuer = stated?.issuer ?? authorizationServerUrl
  return {
    issuer,
    ...(metadata && { metadata: { ...brief({ ...metadata, ...stated }), issuer } }),
    resource,
    scope: joinScopes(wanted, offline)?.slice(0, MAX_SCOPE),
  }
}

/**
 * Reads the metadata of an MCP server and of its authorization server: at the address that it states, or else at
 * well-known ones. Servers behind a proxy state an address that only they know.
 */
async function serverOf(url: string, stated: URL | undefined, reading: Reading) {
  const plainly = () => serverAt(url, undefined, reading)
  if (!stated) return plainly()
  try {
    const found = await serverAt(url, stated, reading)
    return found.resourceMetadata ? found : await plainly()
  } catch (error) {
    const found = await plainly().catch(() => null)
    if (found?.resourceMetadata) return found
    throw error
  }
}

/** Maximum number of authorization servers of an MCP server that are asked. */
const MAX_SERVERS = 5

/**
 * Reads the metadata of an MCP server at an address, or at its well-known ones, and those of the first of its
 * authorization servers that has some. A server without metadata of its own is its own authorization server.
 */
async function serverAt(url: string, stated: URL | undefined, reading: Reading) {
  const resourceMetadata = await discoverOAuthProtectedResourceMetadata(
    url,
    stated && { resourceMetadataUrl: stated },
    reading.fetch,
  ).catch((error: unknown) => {
    // The server cannot be reached.
    if (error instanceof TypeError) throw error
    return undefined
  })
  const listed = resourceMetadata?.authorization_servers ?? []
  const addresses = listed.length ? listed.slice(0, MAX_SERVERS) : [new URL('/', url).href]
  const [authorizationServerUrl = ''] = addresses
  const failures: unknown[] = []
  for (const address of addresses) {
    try {
      const authorizationServerMetadata =
        (await metadataOf(address, reading)) ?? (await metadataAtRoot(address, reading.fetch))
      if (authorizationServerMetadata)
        return { authorizationServerUrl: address, authorizationServerMetadata, resourceMetadata }
    } catch (error) {
      failures.push(error)
    }
  }
  if (failures.length) throw failures[0]
  return { authorizationServerUrl, authorizationServerMetadata: undefined, resourceMetadata }
}

/**
 * Reads the metadata at the well-known addresses of an issuer. Throws an {@link IssuerMismatchError} for those of another
 * issuer, unless codes and tokens go to that issuer alone: to its host, or to the endpoints in its own metadata. Many
 * services state an issuer behind their address (Slack, Atlassian, Entra ID).
 */
async function metadataOf(address: string, { fetch: fetchFn, issuers }: Reading) {
  const found = await discoverAuthorizationServerMetadata(address, { fetchFn, skipIssuerValidation: true })
  if (!found || found.issuer === address.replace(/\/$/, '')) return found
  const { issuer } = found
  const endpointsOf = ({ authorization_endpoint, token_endpoint }: AuthorizationServerMetadata) => [
    authorization_endpoint,
    token_endpoint,
    issuers.get(issuer)?.revocation_endpoint ?? token_endpoint,
  ]
  const used = endpointsOf(found)
  if (used.every((endpoint) => isHostOf(issuer, endpoint))) return found
  const own = await discoverAuthorizationServerMetadata(issuer, { fetchFn }).catch(() => undefined)
  const known = own ? endpointsOf(own) : []
  if (used.every((endpoint) => known.includes(endpoint))) return found
  throw new IssuerMismatchError('metadata', address, issuer)
}

/** Returns whether an endpoint is on the host of an issuer, or on one above it. */
function isHostOf(issuer: string, endpoint: string): boolean {
  const [own, other] = [URL.parse(issuer), URL.parse(endpoint)]
  return own !== null && (own.host === other?.host || own.hostname.endsWith(`.${other?.hostname}`))
}

/** Reads the metadata of an issuer with a path from the root of its host, where some servers have them. */
async function metadataAtRoot(issuer: string, fetchFn: FetchLike) {
  const root = new URL('/', issuer).href
  if (new URL(issuer).pathname === '/') return undefined
  const found = await discoverAuthorizationServerMetadata(root, { fetchFn, skipIssuerValidation: true })
  return found?.issuer === issuer.replace(/\/$/, '') ? found : undefined
}

/**
 * Wraps `fetch` to look for metadata at the end of an address, too: services that own only a path of their host have
 * them there, instead of before the path.
 */
const withAppended =
  (fetch: FetchLike): FetchLike =>
  async (address, init) => {
    const response = await fetch(address, init)
    const url = new URL(address)
    const [, name, path] = /^\/\.well-known\/(oauth-[a-z-]+)(\/.*[^/])\/?$/.exec(url.pathname) ?? []
    if (response.ok || !name) return response
    url.pathname = `${path}/.well-known/${name}`
    return fetch(url, init)
  }

/** Asks the MCP server without a token, to see its challenge. */
async function challenge({ url, transport }: DiscoverableServer, send: FetchLike) {
  const message = {
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'muster', version: '1' } },
  }
  const post = { method: 'POST', body: JSON.stringify(message) }
  const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' }
  const response = await send(url, { ...(transport !== 'sse' && post), headers }).catch((cause: unknown) => {
    const reason = causeIn(cause, cleaner([])) ?? 'the connection failed'
    throw new AuthorizationProblem(`the MCP server cannot be reached: ${reason}`, { cause })
  })
  await response.body?.cancel()
  return response.status === 401 || response.status === 403 ? readChallenge(response.headers) : {}
}

/** Returns the parts of metadata that are used, because the rest may be long. */
const brief = (metadata: AuthorizationServerMetadata): OAuthMetadata => ({
  issuer: metadata.issuer,
  authorization_endpoint: metadata.authorization_endpoint,
  token_endpoint: metadata.token_endpoint,
  registration_endpoint: metadata.registration_endpoint,
  ...('revocation_endpoint' in metadata && { revocation_endpoint: String(metadata.revocation_endpoint) }),
  response_types_supported: metadata.response_types_supported,
  code_challenge_methods_supported: metadata.code_challenge_methods_supported,
  token_endpoint_auth_methods_supported: metadata.token_endpoint_auth_methods_supported,
  authorization_response_iss_parameter_supported: metadata.authorization_response_iss_parameter_supported,
  client_id_metadata_document_supported: metadata.client_id_metadata_document_supported,
})

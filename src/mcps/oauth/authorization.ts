import {
  exchangeAuthorization,
  type FetchLike,
  fetchToken,
  OAuthError,
  type OAuthMetadata,
  type OAuthTokens,
  refreshAuthorization,
  selectClientAuthMethod,
  startAuthorization,
  validateAuthorizationResponseIssuer,
} from '@modelcontextprotocol/client'
import { decodeJwt } from 'jose'
import type { Settings } from '../../settings.ts'
import { cleaner } from '../client/content.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'
import { type DiscoverableServer, type Discovered, discover, type Issuer } from './discovery.ts'
import { openHttp, type Patience } from './http.ts'
import { type Issuers, mendAnswer } from './mend-answer.ts'
import { codeOf, explained } from './problems.ts'
import { isLoopback, register } from './registration.ts'
import { MAX_SCOPE } from './scope.ts'

// Requests to authorization servers of MCP servers (contract-2.md section 2.13). All answers are untrusted.

const MAX_TOKEN = 16 * 1024
const MAX_ACCOUNT = 200

/** The identity of this service at an authorization server. */
export type OAuthClient = {
  client_id: string
  client_secret?: string
  /** The end of the secret (s since 1970); 0 for none. */
  client_secret_expires_at?: number
  token_endpoint_auth_method?: string
}

/** Tokens, with everything that is needed to refresh and revoke them. */
export type Grant = Issuer & {
  client: OAuthClient
  accessToken: string
  refreshToken?: string
  /** The granted scope, and the one that was asked for. */
  scope?: string
  asked?: string
  /** Lifetime of the access token (s). */
  expiresIn?: number
  account?: string
}

/** The requests for one MCP server. */
export type Authorization = AsyncDisposable & {
  /** Finds the authorization server: by the challenge of the MCP server, or else at well-known addresses. */
  discover(): Promise<Discovered>
  /** Registers this service as a client (RFC 7591). */
  register(server: Issuer, redirectUri: string, scope: string | undefined): Promise<OAuthClient>
  /** Returns the address for the browser, and the verifier of PKCE. */
  begin(
    server: Issuer,
    client: OAuthClient,
    request: { redirectUri: string; scope: string | undefined; state: string },
  ): Promise<{ address: URL; verifier: string }>
  /** Redeems the code in the address with which the browser has returned. */
  redeem(
    server: Issuer,
    client: OAuthClient,
    answer: { query: URLSearchParams; redirectUri: string; verifier: string; scope: string | undefined },
  ): Promise<Grant>
  refresh(grant: Grant): Promise<Grant>
  /** Asks for tokens without a person. */
  clientCredentials(server: Issuer, client: OAuthClient, scope: string | undefined): Promise<Grant>
  /** Revokes the tokens (RFC 7009). Returns false if the server does not support it. */
  revoke(grant: Grant): Promise<boolean>
}

/**
 * Opens the requests for an MCP server, which connect only where the private-network rule permits. The methods
 * throw {@link AuthorizationProblem}.
 */
export function openAuthorization(settings: Settings, mcp: DiscoverableServer, patience?: Patience): Authorization {
  const http = openHttp(settings, patience)
  const issuers: Issuers = new Map()
  const fetch = async (address: string | URL, init: RequestInit = {}) =>
    mendAnswer(await http.send(address, init), init, { address, resource: mcp.url, issuers })
  const common = ({ issuer, metadata, resource }: Issuer) => ({
    ...(metadata && { metadata }),
    ...(resource !== undefined && !isMicrosofts(issuer) && { resource }),
    fetchFn: fetch,
  })
  type Common = Pick<Issuer, 'metadata'> & { resource?: string; fetchFn: FetchLike }
  /** Asks for tokens, and again without the resource if the server knows none of that name. */
  const withResource = (server: Issuer, ask: (options: Common) => Promise<OAuthTokens>) =>
    ask(common(server)).catch((error: unknown) => {
      if (!(error instanceof OAuthError) || !refusesResource(error.code, error.message)) throw error
      const { resource: _, ...others } = common(server)
      return ask(others)
    })
  /** Asks for tokens, and again with the secret in the form if the server does not find it in the header. */
  const forTokens = async (
    server: Issuer,
    client: OAuthClient,
    scope: string | undefined,
    ask: (options: Common, client: OAuthClient) => Promise<OAuthTokens>,
  ): Promise<Grant> => {
    const tokensFor = async (one: OAuthClient) =>
      toGrant(server, one, await withResource(server, (options) => ask(options, one)), scope)
    return tokensFor(client).catch((error: unknown) => {
      if (!(error instanceof OAuthError && NO_CLIENT.has(error.code) && mayPost(client, server))) throw error
      return tokensFor({ ...client, token_endpoint_auth_method: 'client_secret_post' })
    })
  }

  return {
    discover: () => explained(() => discover(mcp, { send: http.send, fetch, issuers })),
    register: (server, redirectUri, scope) => explained(() => register(server, redirectUri, scope, fetch)),
    begin: (server, client, { redirectUri, scope, state }) =>
      explained(async () => {
        const { authorizationUrl: address, codeVerifier: verifier } = await startAuthorization(server.issuer, {
          ...common(server),
          ...(scope && { scope }),
          clientInformation: client,
          redirectUrl: redirectUri,
          state,
        })
        if (address.protocol !== 'https:' && !isLoopback(address)) {
          throw new AuthorizationProblem('the page of the authorization server is not https')
        }
        if (isGoogles(server.issuer)) {
          // Without these, Google gives no refresh token, or one at the first sign-in only.
          address.searchParams.set('access_type', 'offline')
          address.searchParams.set('prompt', 'consent')
        }
        return { address, verifier }
      }),
    redeem: (server, client, { query, redirectUri, verifier, scope }) =>
      explained(async () => {
        const { code, iss } = codeIn(query, server)
        const redeemed = {
          authorizationCode: code,
          codeVerifier: verifier,
          redirectUri,
          ...(iss !== undefined && { iss }),
        }
        const grant = await forTokens(server, client, scope, (options, clientInformation) =>
          exchangeAuthorization(server.issuer, { ...options, ...redeemed, clientInformation }),
        )
        return scope === undefined ? grant : { ...grant, asked: scope }
      }),
    refresh: (grant) =>
      explained(async () => {
        const { client, refreshToken = '', scope, asked, account } = grant
        // Without a scope, Microsoft's servers take the client for the resource. The granted one may be refused.
        const wanted = isMicrosofts(grant.issuer) && asked !== undefined ? { scope: asked } : {}
        const renewed = await forTokens(grant, client, scope, (options, clientInformation) =>
          refreshAuthorization(grant.issuer, { ...options, clientInformation, refreshToken, ...wanted }),
        )
        return { ...(account !== undefined && { account }), ...(asked !== undefined && { asked }), ...renewed }
      }),
    clientCredentials: (server, client, scope) =>
      explained(async () => {
        const withAudience = (audience?: string) => {
          const parameters = new URLSearchParams({
            grant_type: 'client_credentials',
            ...(scope && { scope }),
            ...(audience && { audience }),
          })
          return forTokens(server, client, scope, (options, clientInformation) => {
            const provider = {
              redirectUrl: undefined,
              clientMetadata: { redirect_uris: [] },
              clientInformation: () => clientInformation,
              prepareTokenRequest: () => parameters,
            } as unknown as Parameters<typeof fetchToken>[0]
            return fetchToken(provider, server.issuer, options)
          })
        }
        // Auth0 reads the resource under the name that it had before there was a standard.
        return withAudience().catch((error: unknown) => {
          if (!(error instanceof OAuthError && /\baudience\b/i.test(error.message))) throw error
          return withAudience(server.resource)
        })
      }),
    revoke: (grant) => explained(() => revoke(fetch, grant)),
    [Symbol.asyncDispose]: http.close,
  }
}

/** Returns whether an authorization server is one of Microsoft's, which refuse a resource beside their scopes. */
const isMicrosofts = (issuer: string): boolean =>
  /(?:^|\.)(?:microsoftonline\.(?:com|us|cn)|ciamlogin\.com|b2clogin\.com)$/.test(new URL(issuer).hostname)

const isGoogles = (issuer: string): boolean => new URL(issuer).hostname === 'accounts.google.com'

/** Returns whether an authorization server refuses the resource, which some know under another name, or not at all. */
export const refusesResource = (code: string, description: string): boolean =>
  /^invalid_(?:target|resource)$/.test(code) || (code === 'invalid_request' && /\bresource\b/i.test(description))

/** Returns the code in the address with which the browser has returned. Throws if it carries an error or no code. */
function codeIn(query: URLSearchParams, { metadata }: Issuer): { code: string; iss: string | undefined } {
  const iss = query.get('iss') ?? undefined
  const issParameterSupported = metadata?.authorization_response_iss_parameter_supported === true
  const expectedIssuer = metadata && ofTenant(metadata.issuer, iss)
  validateAuthorizationResponseIssuer({ iss, expectedIssuer, issParameterSupported })
  const error = query.get('error')
  if (error === 'access_denied') throw new AuthorizationProblem('the access was denied', { code: error })
  const code = query.get('code')
  if (!code || error !== null) {
    const isFinal = OF_CLIENT.has(error ?? '')
    const said = codeOf(error ?? '')
    throw new AuthorizationProblem(`the authorization server answered ${said ?? 'an error'}`, { isFinal, code: said })
  }
  // The SDK compares the issuer once more.
  return { code, iss: iss && (metadata?.issuer ?? iss) }
}

/**
 * Returns the issuer that an answer must state. Servers of Microsoft for all tenants (`common`, `organizations`) have a
 * placeholder in its place, and answer with the tenant of the account.
 */
function ofTenant(issuer: string, iss: string | undefined): string {
  const [before = '', after] = issuer.split('{tenantid}')
  if (iss === undefined || after === undefined) return issuer
  const tenant = iss.slice(before.length, iss.length - after.length)
  return /^[\w-]+$/.test(tenant) ? before + tenant + after : issuer
}

/** Errors of a page for users that another client may repair. Some servers grant only the scope of a registration. */
const OF_CLIENT: ReadonlySet<string> = new Set(['invalid_scope', 'invalid_client', 'unauthorized_client'])

/** Revokes the refresh token, or the access token of a grant without one. */
async function revoke(fetch: FetchLike, { client, metadata, accessToken, refreshToken }: Grant): Promise<boolean> {
  const endpoint = metadata?.revocation_endpoint
  if (!endpoint || (!endpoint.startsWith('https:') && !isLoopback(new URL(endpoint)))) return false
  const form = new URLSearchParams(
    refreshToken === undefined
      ? { token: accessToken, token_type_hint: 'access_token' }
      : { token: refreshToken, token_type_hint: 'refresh_token' },
  )
  const headers = authenticate(client, metadata, form)
  const response = await fetch(endpoint, { method: 'POST', headers, body: form })
  await response.body?.cancel()
  if (!response.ok) throw new AuthorizationProblem(`the authorization server answered ${response.status}`)
  return true
}

/** Errors of servers that find no secret of a client. */
const NO_CLIENT: ReadonlySet<string> = new Set(['invalid_client', 'invalid_request'])

/** Returns whether a secret that was sent in a header may be sent in the form instead. */
function mayPost(client: OAuthClient, { metadata }: Issuer): boolean {
  const { token_endpoint_auth_methods_supported: supported = [] } = metadata ?? {}
  const isBasic = selectClientAuthMethod(client, supported) === 'client_secret_basic'
  return isBasic && (!supported.length || supported.includes('client_secret_post'))
}

/** Adds the authentication of a client to a form (RFC 6749, section 2.3.1). Returns the headers. */
function authenticate(client: OAuthClient, metadata: OAuthMetadata, form: URLSearchParams) {
  const headers = new Headers({ Accept: 'application/json' })
  const { client_id, client_secret = '' } = client
  const method = selectClientAuthMethod(client, metadata.token_endpoint_auth_methods_supported ?? [])
  if (method === 'client_secret_basic') {
    headers.set(
      'Authorization',
      `Basic ${btoa(`${encodeURIComponent(client_id)}:${encodeURIComponent(client_secret)}`)}`,
    )
    return headers
  }
  form.set('client_id', client_id)
  if (method === 'client_secret_post') form.set('client_secret', client_secret)
  return headers
}

const isToken = (text: string): boolean => text.length <= MAX_TOKEN && /^[\x21-\x7e]+$/.test(text)

/**
 * Checks the answer of a token endpoint. `scope`: the requested one, which is granted unless the answer states another.
 */
function toGrant(server: Issuer, client: OAuthClient, tokens: OAuthTokens, scope: string | undefined): Grant {
  const { access_token: accessToken, refresh_token: refreshToken, token_type, expires_in: expiresIn, id_token } = tokens
  if (!/^bearer/i.test(token_type)) throw new AuthorizationProblem('the tokens are no bearer tokens')
  if (!isToken(accessToken) || (refreshToken !== undefined && !isToken(refreshToken))) {
    throw new AuthorizationProblem('the tokens have characters that no header can contain')
  }
  const granted = (tokens.scope ?? scope)?.slice(0, MAX_SCOPE)
  const account = id_token === undefined ? undefined : accountOf(id_token)
  return {
    issuer: server.issuer,
    ...(server.resource !== undefined && { resource: server.resource }),
    client,
    accessToken,
    ...(server.metadata && { metadata: server.metadata }),
    ...(refreshToken !== undefined && { refreshToken }),
    ...(granted && { scope: granted }),
    ...(expiresIn !== undefined && { expiresIn }),
    ...(account && { account }),
  }
}

/** Returns the name of an account, for people only: the token came straight from the server, and decides nothing. */
function accountOf(idToken: string): string | undefined {
  try {
    const { email, preferred_username, name } = decodeJwt<Record<string, unknown>>(idToken)
    const found = [email, preferred_username, name].find((claim) => typeof claim === 'string' && claim !== '')
    return typeof found === 'string' ? cleaner([])(found, MAX_ACCOUNT) : undefined
  } catch {
    return undefined
  }
}

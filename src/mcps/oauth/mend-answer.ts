import { extractWWWAuthenticateParams } from '@modelcontextprotocol/client'
import { parseJson } from '../../lib/json.ts'
import { asText, type Fields, isObject } from '../../lib/unknown.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'

/** Fields of the metadata of authorization servers that the SDK drops, by the issuer that it compares. */
export type Issuers = Map<string, { issuer: string; revocation_endpoint?: string }>

/**
 * Repairs an answer of an authorization server for the SDK: metadata, a registration (a request with JSON), or tokens
 * (one with a form). Servers send null or an empty text for a field that they do not use, forms instead of JSON, and
 * leave fields out. `address`: that of the request. `resource`: the address of the MCP server. Throws an
 * {@link AuthorizationProblem} for a refusal of tokens that is none of the protocol.
 */
export async function mendAnswer(
  response: Response,
  { method = 'GET', body }: RequestInit,
  { address, resource, issuers }: { address: string | URL; resource: string; issuers: Issuers },
): Promise<Response> {
  if (method === 'GET' && response.ok) return toDocument(await response.text(), new URL(address), resource, issuers)
  // Web frameworks fail at addresses that they do not know.
  if (method === 'GET') return response.status > 501 ? response : new Response(null, { status: 404 })
  const text = await response.text()
  if (body instanceof URLSearchParams) return toTokens(response.status, text)
  const value = response.ok ? parseJson(text) : undefined
  return isObject(value) ? json(toRegistration(value, String(body))) : new Response(text || null, response)
}

const json = (value: unknown, status = 200) =>
  new Response(JSON.stringify(value), { status, headers: { 'Content-Type': 'application/json' } })

/** Fields of metadata that are used, by their form. */
const FIELDS = {
  addresses: ['authorization_endpoint', 'token_endpoint', 'registration_endpoint', 'revocation_endpoint'],
  lists: [
    'response_types_supported',
    'scopes_supported',
    'code_challenge_methods_supported',
    'token_endpoint_auth_methods_supported',
  ],
  flags: ['authorization_response_iss_parameter_supported', 'client_id_metadata_document_supported'],
}

/**
 * Returns metadata: of an authorization server, or of an MCP server, which has no endpoints. Leaves out unused
 * fields and those of a wrong form. A page instead of them, as sites answer every address with, counts as none.
 */
function toDocument(text: string, address: URL, own: string, issuers: Issuers): Response {
  const value = parseJson(text)
  if (!isObject(value)) return new Response(null, { status: 404 })
  const {
    issuer,
    resource = own,
    authorization_server,
    authorization_servers = authorization_server,
    ...fields
  } = withoutEmpty(value)
  const pick = (names: readonly string[], read: (field: unknown) => unknown): Fields =>
    Object.fromEntries(names.map((name) => [name, read(fields[name])]).filter(([, field]) => field !== undefined))
  const used: Fields = {
    ...pick(FIELDS.addresses, (field) =>
      URL.canParse(asText(field)) ? withSchemeOf(address, asText(field)) : undefined,
    ),
    ...pick(FIELDS.lists, toList),
    ...pick(FIELDS.flags, (field) => (typeof field === 'boolean' ? field : undefined)),
  }
  if (used.token_endpoint === undefined && used.authorization_endpoint === undefined) {
    // Some servers state the address of the metadata instead of the issuer.
    const servers = toList(authorization_servers)
      ?.filter((one) => URL.canParse(one))
      .map((one) =>
        withSchemeOf(address, one).replace(/\/\.well-known\/(?:oauth-authorization-server|openid-configuration)/, ''),
      )
    return json({ ...used, resource, ...(servers && { authorization_servers: servers }) })
  }
  if (typeof issuer !== 'string') return json(used)
  // The SDK compares the issuer with an address that may have no slash at its end.
  const compared = withSchemeOf(address, issuer).replace(/\/$/, '')
  const revocation = asText(used.revocation_endpoint)
  issuers.set(compared, { issuer, ...(revocation && { revocation_endpoint: revocation }) })
  return json({ ...UNUSED, authorization_endpoint: used.token_endpoint, ...used, issuer: compared })
}

/**
 * Gives a stated address the scheme with which its host was reached: servers behind a proxy that speaks TLS for them
 * state http.
 */
export const withSchemeOf = (reached: URL, stated: string): string =>
  reached.protocol === 'https:' && URL.parse(stated)?.host === reached.host
    ? stated.replace(/^http:/i, 'https:')
    : stated

/** Fields that OpenID Connect and the SDK demand, and that servers leave out. */
const UNUSED: Fields = {
  response_types_supported: ['code'],
  jwks_uri: 'https://unused.invalid',
  subject_types_supported: [],
  id_token_signing_alg_values_supported: [],
}

/** Returns the texts of a list, which some servers state as one text. */
function toList(value: unknown): string[] | undefined {
  if (typeof value === 'string') return value.split(/[\s,]+/).filter(Boolean)
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : undefined
}

/** Returns the fields of a registration that are used. */
function toRegistration(value: Fields, request: string) {
  const { client_id, client_secret, client_secret_expires_at: until, token_endpoint_auth_method } = withoutEmpty(value)
  const { redirect_uris } = JSON.parse(request) as { redirect_uris?: unknown }
  return {
    client_id: typeof client_id === 'number' ? String(client_id) : client_id,
    redirect_uris,
    ...(client_secret !== undefined && { client_secret, client_secret_expires_at: Number(until) || 0 }),
    ...(token_endpoint_auth_method !== undefined && { token_endpoint_auth_method }),
  }
}

/** Errors of the protocol that are final, whatever the status beside them. */
const REFUSAL = /^(?:invalid_|unauthorized_|unsupported_|access_denied$)/
/** Lifetimes beyond a hundred years stand for tokens that do not end (s). */
const MAX_LIFETIME = 100 * 365 * 24 * 60 * 60

function toTokens(status: number, text: string): Response {
  const value = parseJson(text) ?? (/^\w+=/.test(text) ? Object.fromEntries(new URLSearchParams(text)) : undefined)
  const error = isObject(value) ? asText(value.error) : ''
  // Web frameworks and gateways have errors of their own, with statuses that the protocol does not use.
  const isOwn = [400, 401, 403].includes(status)
  if (status >= 400 && !(error && isOwn) && !REFUSAL.test(error)) {
    const isFinal = isObject(value) && (status === 400 || status === 401)
    throw new AuthorizationProblem(`the authorization server answered with the status ${status}`, { isFinal })
  }
  if (!isObject(value)) return new Response(text || null, { status })
  const { scope, expires_in: lifetime, ...fields } = withoutEmpty(tokensIn(value))
  return json(
    {
      ...('access_token' in fields && { token_type: 'Bearer' }),
      ...(scope !== undefined && { scope: toScope(scope) }),
      // Servers state 0, too, for tokens that do not end.
      ...(Number(lifetime) > 0 && Number(lifetime) < MAX_LIFETIME && { expires_in: Number(lifetime) }),
      ...fields,
    },
    status,
  )
}

/** Returns a scope as words. Some servers list them, or divide them by commas alone. */
function toScope(scope: unknown): unknown {
  if (Array.isArray(scope)) return scope.join(' ')
  return typeof scope === 'string' && !/\s/.test(scope) ? scope.replaceAll(',', ' ') : scope
}

/** Returns the tokens of a user in Slack's answer, which has types of its own for bearer tokens. */
function tokensIn({ ok, authed_user: user, ...fields }: Fields): Fields {
  if (ok !== true) return fields
  return { ...fields, ...(isObject(user) && 'access_token' in user && user), token_type: 'Bearer' }
}

const withoutEmpty = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== ''))

/** Reads the challenge of a refused request for a bearer token, also beside those of other schemes (RFC 9110). */
export function readChallenge(headers: Headers): ReturnType<typeof extractWWWAuthenticateParams> {
  const header = headers.get('www-authenticate') ?? ''
  const challenge = header.slice(Math.max(0, header.search(/\bbearer\b/i)))
  return extractWWWAuthenticateParams(new Response(null, { headers: { 'WWW-Authenticate': challenge } }))
}

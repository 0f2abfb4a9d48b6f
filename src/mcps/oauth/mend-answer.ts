import { extractWWWAuthenticateParams } from '@modelcontextprotocol/client'
import { parseJson } from '../../lib/json.ts'
import { type Fields, isObject } from '../../lib/unknown.ts'
import { AuthorizationProblem } from '../client/unreachable.ts'

/** The issuers that metadata state, by the form that the SDK compares. */
export type Issuers = Map<string, string>

/**
 * Repairs an answer of an authorization server for the SDK: metadata, a registration (a request with JSON), or tokens
 * (one with a form). Servers send null or an empty text for a field that they do not use, forms instead of JSON, and
 * leave fields out. Throws an {@link AuthorizationProblem} for a refusal of tokens that is none of the protocol.
 */
export async function mendAnswer(
  response: Response,
  { method = 'GET', body }: RequestInit,
  issuers: Issuers,
): Promise<Response> {
  if (method === 'GET' && response.ok) return toDocument(await response.text(), issuers)
  // Web frameworks fail at addresses that they do not know.
  if (method === 'GET') return response.status > 501 ? response : new Response(null, { status: 404 })
  const text = await response.text()
  if (body instanceof URLSearchParams) return toTokens(response.status, text)
  const value = response.ok ? parseJson(text) : undefined
  return isObject(value) ? json(toRegistration(value, String(body))) : new Response(text || null, response)
}

const json = (value: unknown, status = 200) =>
  new Response(JSON.stringify(value), { status, headers: { 'Content-Type': 'application/json' } })

/** Returns metadata. A page instead of them, as sites answer every address with, counts as none. */
function toDocument(text: string, issuers: Issuers): Response {
  const value = parseJson(text)
  if (!isObject(value)) return new Response(null, { status: 404 })
  const { issuer, ...fields } = withoutEmpty(value)
  const types = 'token_endpoint' in fields && { response_types_supported: ['code'] }
  if (typeof issuer !== 'string') return json({ ...types, ...fields })
  // The SDK compares the issuer with an address that has no slash at its end.
  const compared = URL.parse(issuer)?.pathname === '/' ? issuer.replace(/\/$/, '') : issuer
  issuers.set(compared, issuer)
  return json({ ...types, issuer: compared, ...fields })
}

/** Returns the fields of a registration that are used. */
function toRegistration(value: Fields, request: string) {
  const { client_id, client_secret, client_secret_expires_at: until, token_endpoint_auth_method } = withoutEmpty(value)
  const { redirect_uris } = JSON.parse(request) as { redirect_uris?: unknown }
  return {
    client_id,
    redirect_uris,
    ...(client_secret !== undefined && { client_secret, client_secret_expires_at: Number(until) || 0 }),
    ...(token_endpoint_auth_method !== undefined && { token_endpoint_auth_method }),
  }
}

function toTokens(status: number, text: string): Response {
  const value = parseJson(text) ?? (/^\w+=/.test(text) ? Object.fromEntries(new URLSearchParams(text)) : undefined)
  if (status >= 400 && !(isObject(value) && typeof value.error === 'string')) {
    // An answer of the server itself, rather than of a gateway before it.
    const isFinal = isObject(value) && (status === 400 || status === 401)
    throw new AuthorizationProblem(`the authorization server answered with the status ${status}`, { isFinal })
  }
  if (!isObject(value)) return new Response(text || null, { status })
  const { scope, expires_in: lifetime, ...fields } = withoutEmpty(tokensIn(value))
  return json(
    {
      ...('access_token' in fields && { token_type: 'Bearer' }),
      ...(scope !== undefined && { scope: Array.isArray(scope) ? scope.join(' ') : scope }),
      // Servers state 0 for tokens that do not end.
      ...(Number(lifetime) > 0 && { expires_in: Number(lifetime) }),
      ...fields,
    },
    status,
  )
}

/** Returns the tokens of a user in Slack's answer, which has types of its own for bearer tokens. */
function tokensIn({ ok, authed_user: user, ...fields }: Fields): Fields {
  if (ok !== true) return fields
  return { ...fields, ...(isObject(user) && 'access_token' in user && user), token_type: 'Bearer' }
}

const withoutEmpty = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== ''))

/** Reads the challenge of a refused request for a bearer token, also beside those of other schemes (RFC 9110). */
export function readChallenge(response: Response): ReturnType<typeof extractWWWAuthenticateParams> {
  const header = response.headers.get('www-authenticate') ?? ''
  const challenge = header.slice(Math.max(0, header.search(/\bbearer\b/i)))
  return extractWWWAuthenticateParams(new Response(null, { headers: { 'WWW-Authenticate': challenge } }))
}

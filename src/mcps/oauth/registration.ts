import { type FetchLike, RegistrationRejectedError, registerClient } from '@modelcontextprotocol/client'
import { parseJson } from '../../lib/json.ts'
import { asObject } from '../../lib/unknown.ts'
import type { OAuthClient } from './authorization.ts'
import type { Issuer } from './discovery.ts'

/** Metadata of this service as a client. */
export const CLIENT_METADATA = {
  client_name: 'Muster',
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
}

/** Authentication methods in order of preference. */
const AUTH_METHODS = ['client_secret_basic', 'client_secret_post', 'none']

/**
 * Registers this service as a client (RFC 7591). Servers that refuse a scope or a client with a secret (Keycloak, MCP
 * OAuth Proxy) are asked again without these. Throws the first refusal if all are refused.
 */
export async function register(
  { issuer, metadata }: Issuer,
  redirectUri: string,
  scope: string | undefined,
  fetchFn: FetchLike,
): Promise<OAuthClient> {
  const supported = metadata?.token_endpoint_auth_methods_supported
  const method = AUTH_METHODS.find((one) => !supported || supported.includes(one)) ?? 'none'
  const whole = { scope, token_endpoint_auth_method: method }
  const plainer = [
    ...(scope ? [{ token_endpoint_auth_method: method }] : []),
    ...(method !== 'none' && !supported ? [{ token_endpoint_auth_method: 'none' }] : []),
  ]
  const ask = async (fields: { scope?: string | undefined; token_endpoint_auth_method: string }) => {
    const {
      client_id,
      client_secret,
      client_secret_expires_at = 0,
      token_endpoint_auth_method,
    } = await registerClient(issuer, {
      ...(metadata && { metadata }),
      fetchFn,
      clientMetadata: {
        ...CLIENT_METADATA,
        ...fields,
        redirect_uris: [redirectUri],
        application_type: isLoopback(new URL(redirectUri)) ? 'native' : 'web',
      },
    })
    return {
      client_id,
      ...(client_secret && { client_secret, client_secret_expires_at }),
      ...(token_endpoint_auth_method && { token_endpoint_auth_method }),
    }
  }
  return ask(whole).catch(async (error: unknown) => {
    if (!isAboutFields(error)) throw error
    for (const fields of plainer) {
      const client = await ask(fields).catch(() => null)
      if (client) return client
    }
    throw error
  })
}

/** Returns whether a registration was refused because of its fields, other than the address. */
function isAboutFields(error: unknown): boolean {
  if (!(error instanceof RegistrationRejectedError)) return false
  const { error: code } = asObject(parseJson(error.body))
  return [400, 403, 422].includes(error.status) && code !== 'invalid_redirect_uri'
}

/** Returns whether an address is of this machine, without TLS. */
export const isLoopback = ({ protocol, hostname }: URL): boolean =>
  protocol === 'http:' && /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname)

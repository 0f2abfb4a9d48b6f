import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http'
import { calculateJwkThumbprint, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose'
// @ts-expect-error It has no types of its own.
import Provider from 'oidc-provider'
import { listen } from './listen.ts'

const REDIRECT = 'http://127.0.0.1/callback'
const SIGN_IN_REDIRECT = 'http://127.0.0.1/api/auth/oidc/callback'
export const AUDIENCE = 'muster-front-end'

export type Person = { sub: string; email?: string; email_verified?: boolean }

/** A signing key of the issuer. */
export type Key = Awaited<ReturnType<typeof generateKey>>

/** Creates a key pair for RS256 or another algorithm, with a unique id. */
export async function generateKey(alg = 'RS256') {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = await exportJWK(privateKey)
  const kid = await calculateJwkThumbprint(jwk)
  return { alg, kid, privateKey, publicKey, jwk: { ...jwk, kid, alg, use: 'sig' } }
}

export type Oidc = AsyncDisposable & {
  readonly issuer: string
  readonly key: Key
  /** People who can sign in, by their login. */
  readonly people: Map<string, Person>
  /** Signs a person in as a browser would. Returns the ID token. */
  signIn(person: Person): Promise<string>
  /** Creates a token of any content, by default signed with the issuer's key. */
  sign(claims: JWTPayload, options?: { key?: Key; header?: Record<string, unknown> }): Promise<string>
  /** Replaces its keys; the first one signs. */
  rotate(...keys: Key[]): Promise<void>
  /** Number of fetches of the keys, and of the discovery document. */
  readonly fetches: { jwks: number; discovery: number }
  /** If set, answers instead of the provider. */
  broken: RequestListener | null
}

/** A real OpenID provider (oidc-provider from npm) on loopback. */
export async function startOidc(): Promise<Oidc> {
  const people = new Map<string, Person>()
  const fetches = { jwks: 0, discovery: 0 }
  let handle: RequestListener = () => {}
  const server: Server = createServer((req: IncomingMessage, res: ServerResponse) => {
    if (req.url === '/jwks') fetches.jwks++
    if (req.url?.startsWith('/.well-known/')) fetches.discovery++
    return (oidc.broken ?? handle)(req, res)
  })
  const port = await listen(server)
  const issuer = `http://127.0.0.1:${port}`
  let keys: Key[] = []

  const rotate = async (...next: Key[]) => {
    keys = next
    // Silences its warnings about storage in memory and about sign-ins without a password.
    const { warn } = console
    console.warn = () => {}
    const provider = new Provider(issuer, {
      clients: [
        {
          client_id: AUDIENCE,
          client_secret: 'secret',
          redirect_uris: [REDIRECT, SIGN_IN_REDIRECT],
          application_type: 'native',
          grant_types: ['authorization_code'],
          response_types: ['code'],
        },
      ],
      jwks: { keys: keys.map(({ jwk }) => jwk) },
      cookies: { keys: ['cookie key'] },
      claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
      conformIdTokenClaims: false,
      ttl: { AccessToken: 600, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
      pkce: { required: () => false },
      findAccount: (_: unknown, id: string) => ({ accountId: id, claims: () => people.get(id) }),
    })
    console.warn = warn
    handle = provider.callback()
  }

  async function signIn(person: Person): Promise<string> {
    people.set(person.sub, person)
    const jar = new Map<string, string>()
    const visit = async (url: string, form?: Record<string, string>) => {
      const response = await fetch(new URL(url, issuer), {
        redirect: 'manual',
        headers: { Cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') },
        ...(form && { method: 'POST', body: new URLSearchParams(form) }),
      })
      for (const cookie of response.headers.getSetCookie()) {
        const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? []
        jar.set(name, value)
      }
      await response.text()
      return response.headers.get('location') ?? ''
    }
    const query = new URLSearchParams({
      client_id: AUDIENCE,
      redirect_uri: REDIRECT,
      response_type: 'code',
      scope: 'openid email',
    })
    let at = await visit(`/auth?${query}`)
    for (const form of [{ prompt: 'login', login: person.sub, password: 'x' }, { prompt: 'consent' }]) {
      at = await visit(await visit(at, form as Record<string, string>))
    }
    const code = new URL(at).searchParams.get('code') ?? ''
    const response = await fetch(`${issuer}/token`, {
      method: 'POST',
      headers: { Authorization: `Basic ${btoa(`${AUDIENCE}:secret`)}` },
      body: new URLSearchParams({ grant_type: 'authorization_code', code, redirect_uri: REDIRECT }),
    })
    return ((await response.json()) as { id_token: string }).id_token
  }

  const oidc: Oidc = {
    issuer,
    get key() {
      return keys[0]!
    },
    people,
    signIn,
    sign: (claims, { key = keys[0]!, header = {} } = {}) =>
      new SignJWT(claims).setProtectedHeader({ alg: key.alg, kid: key.kid, ...header }).sign(key.privateKey),
    rotate,
    fetches,
    broken: null,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  await rotate(await generateKey())
  return oidc
}

import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { text } from 'node:stream/consumers'
import { type JWTPayload, SignJWT } from 'jose'
import { type Clock, systemClock } from '../../src/lib/clock.ts'
import { listen } from './listen.ts'
import { generateKey, type Key } from './oidc.ts'

export const CLIENT_ID = 'muster'
export const CLIENT_SECRET = 'a secret: with % and +'

/** The issuer's claims about a signed-in person. */
export type Answer = {
  claims?: JWTPayload
  /** Changes the claims at the end, or the whole answer of the token endpoint. */
  change?: (claims: JWTPayload) => JWTPayload
  sign?: (claims: JWTPayload, key: Key) => Promise<string> | string
  tokens?: (body: Record<string, unknown>) => Record<string, unknown>
  userinfo?: Record<string, unknown>
}

export type Issuer = AsyncDisposable & {
  readonly issuer: string
  readonly key: Key
  /** Signs a person in for the request in a URL of the authorization endpoint. Returns the next URL of the browser. */
  grant(address: string, answer?: Answer): URL
  /** Overrides answers, path by path. */
  broken: Partial<Record<string, RequestListener>>
  /** Whether a code can be redeemed several times. */
  reusesCodes: boolean
  /** The forms that the token endpoint has received. */
  readonly redeemed: URLSearchParams[]
}

const sha256 = (value: string) => createHash('sha256').update(value).digest('base64url')

export const respond =
  (status: number, body: string, type = 'application/json', headers: Record<string, string> = {}): RequestListener =>
  (_, res) =>
    void res.writeHead(status, { 'Content-Type': type, ...headers }).end(body)

/** An OpenID provider whose answers a test controls. It checks the client, its PKCE and its codes correctly. */
export async function startIssuer(clock: Clock = systemClock): Promise<Issuer> {
  const key = await generateKey()
  const { d, p, q, dp, dq, qi, ...jwk } = key.jwk
  const codes = new Map<string, { query: URLSearchParams; answer: Answer }>()
  const people = new Map<string, Record<string, unknown>>()
  const json = (body: object): RequestListener => respond(200, JSON.stringify(body))
  const seconds = () => Math.floor(clock.now().getTime() / 1000)

  const token: RequestListener = async (req, res) => {
    const form = new URLSearchParams(await text(req))
    issuer.redeemed.push(form)
    const code = form.get('code') ?? ''
    const granted = codes.get(code)
    if (!issuer.reusesCodes) codes.delete(code)
    const basic = `Basic ${btoa(`${CLIENT_ID}:${new URLSearchParams({ x: CLIENT_SECRET }).toString().slice(2)}`)}`
    if (req.headers.authorization !== basic) return respond(401, '{"error": "invalid_client"}')(req, res)
    const isRight =
      granted &&
      granted.query.get('code_challenge') === sha256(form.get('code_verifier') ?? '') &&
      granted.query.get('redirect_uri') === form.get('redirect_uri')
    if (!isRight) return respond(400, '{"error": "invalid_grant", "error_description": "wrong code"}')(req, res)
    const { change = (claims) => claims, tokens = (body) => body, userinfo, claims: more, ...answer } = granted.answer
    const claims: JWTPayload = {
      iss: issuer.issuer,
      aud: CLIENT_ID,
      iat: seconds(),
      exp: seconds() + 300,
      nonce: granted.query.get('nonce') ?? '',
      sub: 'ada',
      ...more,
    }
    const sign =
      answer.sign ??
      ((all, { alg, kid, privateKey }) => new SignJWT(all).setProtectedHeader({ alg, kid }).sign(privateKey))
    people.set(`Bearer access-${code}`, { sub: claims.sub, ...userinfo })
    const body = { access_token: `access-${code}`, token_type: 'Bearer', expires_in: 300 }
    json(tokens({ ...body, id_token: await sign(change(claims), key) }))(req, res)
  }

  const server = createServer((req, res) => {
    const path = (req.url ?? '').split('?', 1)[0] ?? ''
    const handle = issuer.broken[path] ?? handlers[path] ?? respond(404, '{}')
    return handle(req, res)
  })
  const port = await listen(server)
  const address = `http://127.0.0.1:${port}`
  const handlers: Record<string, RequestListener> = {
    '/.well-known/openid-configuration': json({
      issuer: address,
      authorization_endpoint: `${address}/authorize`,
      token_endpoint: `${address}/token`,
      userinfo_endpoint: `${address}/userinfo`,
      jwks_uri: `${address}/jwks`,
      response_types_supported: ['code'],
      id_token_signing_alg_values_supported: ['RS256'],
    }),
    '/jwks': json({ keys: [jwk] }),
    '/userinfo': (req, res) => json(people.get(req.headers.authorization ?? '') ?? {})(req, res),
    '/token': token,
  }
  let last = 0
  const issuer: Issuer = {
    issuer: address,
    key,
    grant(asked, answer = {}) {
      const { searchParams: query } = new URL(asked)
      const code = `code-${++last}`
      codes.set(code, { query, answer })
      const back = new URL(query.get('redirect_uri') ?? '')
      back.search = `${new URLSearchParams({ code, state: query.get('state') ?? '' })}`
      return back
    },
    broken: {},
    reusesCodes: false,
    redeemed: [],
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return issuer
}

import * as client from 'openid-client'
import type { Logger } from 'pino'
import type { Clock } from '../lib/clock.ts'
import { newSecret } from '../lib/id.ts'
import { scrubber } from '../lib/scrub.ts'
import type { Settings } from '../settings.ts'
import { type Claims, claimOf, discover, isElsewhere, roleOf, verifiedEmail } from './provider-claims.ts'
import { openProviderFetch } from './provider-fetch.ts'

/** Maximum time for an answer of the provider (s). */
const TIMEOUT = 10
/** Tolerated difference between the clocks (s). */
const LEEWAY = 30
const MAX_NAME = 200
/** Subjects have at most 255 characters (OpenID Connect Core, 2). */
const SUBJECT = /^[^\p{Cc}\p{Cs}]{1,255}$/u

/** Secrets of one attempt to sign in, which the browser stores meanwhile. */
export type Flow = { state: string; nonce: string; verifier: string }

/** A person whom the provider has signed in. */
export type ProviderIdentity = {
  issuer: string
  subject: string
  /** The verified e-mail address, normalized; null without one. */
  email: string | null
  name: string | null
  /** The role by OIDC_ROLE_CLAIM; null unless that is set, and if the provider withholds the claim. */
  role: 'admin' | 'member' | null
}

/** Reasons for a failed sign-in, as words that select the text of the page. */
export type Problem =
  | 'off'
  | 'expired'
  | 'refused'
  | 'provider_down'
  | 'provider_error'
  | 'invalid_answer'
  | 'clock'
  | 'unverified'
  | 'unknown'
  | 'other_identity'
  | 'too_many'
  | 'failed'

/** A failed sign-in. The message is for the log: never a code, token or e-mail address. */
export class SignInProblem extends Error {
  override name = 'SignInProblem'
  readonly problem: Problem

  constructor(problem: Problem, message: string) {
    super(message)
    this.problem = problem
  }
}

/**
 * Sign-in with the operator's identity provider (contract-2.md section 3.3). Both methods throw {@link SignInProblem}.
 */
export type SignInProvider = {
  /** Starts the code flow. Returns the provider's URL for the browser. */
  begin(redirectUri: string): Promise<{ address: URL; flow: Flow }>
  /** Redeems the code in the URL with which the browser returned, and checks the answer. */
  finish(answer: URL, flow: Flow): Promise<ProviderIdentity>
}

/**
 * Creates the client of the identity provider: code flow with PKCE, state and nonce. The discovery document is fetched
 * at the first sign-in and cached until one fails. The signature of ID tokens is checked although the connection is
 * trusted. Returns null if OIDC_CLIENT_ID is not set.
 */
export function createSignInProvider(
  settings: Settings,
  clock: Clock,
  log: Pick<Logger, 'warn'>,
): SignInProvider | null {
  const { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: clientId, OIDC_CLIENT_SECRET: secret } = settings
  const { OIDC_ROLE_CLAIM: roleClaim, OIDC_ROLE_MAP: roleMap } = settings
  if (!issuer || !clientId) return null
  const limited = openProviderFetch(settings)

  let found: Promise<client.ServerMetadata> | undefined
  const findServer = () =>
    (found ??= discover(issuer, limited)
      .then((document) => ({ ...document, jwks_uri: settings.OIDC_JWKS_URL ?? document.jwks_uri }))
      .catch((error) => {
        found = undefined
        throw error
      }))
  let keys: ReturnType<typeof client.getJwksCache>

  async function configure(): Promise<client.Configuration> {
    const server = await findServer()
    const clockSkew = Math.round((clock.now().getTime() - Date.now()) / 1000)
    const metadata = { [client.clockSkew]: clockSkew, [client.clockTolerance]: LEEWAY }
    const configuration = new client.Configuration(server, clientId!, metadata, authenticationOf(server, secret))
    configuration.timeout = TIMEOUT
    configuration[client.customFetch] = limited as client.CustomFetch
    client.enableNonRepudiationChecks(configuration)
    if (issuer!.startsWith('http:')) client.allowInsecureRequests(configuration)
    if (keys) client.setJwksCache(configuration, keys)
    return configuration
  }

  /** Finds the role in the claims of the ID token, or otherwise of the userinfo endpoint. */
  function findRole(...answers: readonly Claims[]): 'admin' | 'member' | null {
    if (!roleClaim || !roleMap) return null
    const value = answers.map((claims) => claimOf(claims, roleClaim)).find((each) => each !== undefined)
    if (value !== undefined || !answers.some((claims) => isElsewhere(claims, roleClaim))) return roleOf(value, roleMap)
    log.warn(
      { claim: roleClaim },
      'the identity provider withholds the groups of a person who has too many, so the role stays: send only groups ' +
        'that are assigned to the application, or use application roles (OIDC_ROLE_CLAIM=roles)',
    )
    return null
  }

  async function redeem(answer: URL, { state, nonce, verifier }: Flow): Promise<ProviderIdentity> {
    const configuration = await configure()
    const tokens = await client.authorizationCodeGrant(configuration, answer, {
      expectedState: state,
      expectedNonce: nonce,
      pkceCodeVerifier: verifier,
      idTokenExpected: true,
    })
    keys = client.getJwksCache(configuration) ?? keys
    const claims: Claims & { sub: string; iss: string } = tokens.claims()!
    if (!SUBJECT.test(claims.sub)) throw new SignInProblem('invalid_answer', 'the subject is too long, or not a text')
    const isComplete = isVerified(claims) && (!roleClaim || claimOf(claims, roleClaim) !== undefined)
    const more: Claims =
      isComplete || !configuration.serverMetadata().userinfo_endpoint
        ? {}
        : await client.fetchUserInfo(configuration, tokens.access_token, claims.sub)
    // The verification belongs to the address in the same answer.
    const about = isVerified(claims) || more.email === undefined ? claims : { ...more, iss: claims.iss }
    const name = claims.name ?? more.name
    return {
      issuer: claims.iss,
      subject: claims.sub,
      email: verifiedEmail(about),
      name: typeof name === 'string' ? plainName(name) : null,
      role: findRole(claims, more),
    }
  }

  return {
    begin: (redirectUri) =>
      explained(async () => {
        const flow: Flow = { state: newSecret(), nonce: newSecret(), verifier: client.randomPKCECodeVerifier() }
        const address = client.buildAuthorizationUrl(await configure(), {
          redirect_uri: redirectUri,
          scope: settings.OIDC_SCOPES,
          state: flow.state,
          nonce: flow.nonce,
          code_challenge: await client.calculatePKCECodeChallenge(flow.verifier),
          code_challenge_method: 'S256',
        })
        return { address, flow }
      }),
    finish: (answer, flow) =>
      explained(() => redeem(answer, flow), [secret ?? '', flow.verifier, ...answer.searchParams.getAll('code')]).catch(
        (error: SignInProblem) => {
          // The operator may correct the provider meanwhile, as its algorithms or addresses.
          if (error.problem === 'provider_error' || error.problem === 'invalid_answer') found = undefined
          throw error
        },
      ),
  }
}

/** Returns a name on one line; null if nothing is left of it. */
const plainName = (name: string): string | null =>
  name
    .replace(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, MAX_NAME)
    .toWellFormed() || null

const isVerified = (claims: Claims): boolean => verifiedEmail(claims) !== null

/** Chooses the client authentication: the header, unless the provider requires the body. */
function authenticationOf(server: client.ServerMetadata, secret: string | undefined): client.ClientAuth {
  if (secret === undefined) return client.None()
  const methods = server.token_endpoint_auth_methods_supported
  const inHeader = !methods || methods.includes('client_secret_basic')
  return inHeader ? client.ClientSecretBasic(secret) : client.ClientSecretPost(secret)
}

/**
 * Throws a {@link SignInProblem} for any error of `work`. Providers may quote a request in their refusal, so its
 * `secrets` are removed.
 */
async function explained<T>(work: () => Promise<T>, secrets: readonly string[] = []): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof SignInProblem) throw error
    const { problem, message } = toProblem(error)
    throw new SignInProblem(problem, scrubber(secrets)(message, true))
  }
}

/** Errors of a client library that have their cause in the connection or the server. */
const DOWN: ReadonlySet<unknown> = new Set(['OAUTH_TIMEOUT', 'OAUTH_ABORT', 'temporarily_unavailable', 'server_error'])
/** Errors of the answer's form, as from a misconfigured URL. */
const NO_ANSWER: ReadonlySet<unknown> = new Set([
  'OAUTH_RESPONSE_IS_NOT_CONFORM',
  'OAUTH_RESPONSE_IS_NOT_JSON',
  'OAUTH_PARSE_ERROR',
  'OAUTH_HTTP_REQUEST_FORBIDDEN',
  'OAUTH_UNSUPPORTED_OPERATION',
])

function toProblem(error: unknown): SignInProblem {
  if (error instanceof client.AuthorizationResponseError) {
    const reason = `the provider answered ${describeError(error)}`
    if (DOWN.has(error.error)) return new SignInProblem('provider_down', reason)
    return new SignInProblem(error.error === 'access_denied' ? 'refused' : 'provider_error', reason)
  }
  if (error instanceof client.ResponseBodyError) {
    const reason = `the provider answered ${error.status} ${describeError(error)}`
    if (error.status >= 500 || DOWN.has(error.error)) return new SignInProblem('provider_down', reason)
    return new SignInProblem(error.error === 'invalid_grant' ? 'expired' : 'provider_error', reason)
  }
  const failure = error as Error & { code?: unknown; status?: number }
  const { message, code, name } = failure
  // The cause of the last one contains the claims.
  const cause = failure.cause instanceof Error ? failure.cause.message : ''
  const reason = [message, cause].filter(Boolean).join(': ')
  if (DOWN.has(code) || name === 'TimeoutError') return new SignInProblem('provider_down', reason)
  if (code === 'OAUTH_JWT_TIMESTAMP_CHECK_FAILED') return new SignInProblem('clock', reason)
  const status = statusOf(failure)
  if (status >= 500) return new SignInProblem('provider_down', `the provider answered ${status}`)
  if (NO_ANSWER.has(code) || !(error instanceof client.ClientError || error instanceof TypeError)) {
    return new SignInProblem('provider_error', reason)
  }
  return new SignInProblem(error instanceof TypeError ? 'provider_down' : 'invalid_answer', reason)
}

const statusOf = ({ status = 0, cause }: { status?: number; cause?: unknown }): number =>
  cause instanceof Response ? cause.status : status

/** Texts of the provider, for the log. */
const describeError = ({ error, error_description = '' }: { error: string; error_description?: string | undefined }) =>
  `${error} ${error_description}`
    .replace(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, 300)

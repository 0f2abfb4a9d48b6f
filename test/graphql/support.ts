import { toAppError } from '../../src/errors.ts'
import { type Caller, createCaller } from '../../src/router.ts'
import { credentialHeaders, credentialsOf } from '../support/rest.ts'
import { send } from '../support/send.ts'
import type { TestServer } from '../support/server.ts'

type GraphQLAnswer = {
  status: number
  headers: Headers
  data: any
  errors: { message: string; path?: (string | number)[]; extensions: Record<string, unknown> }[] | undefined
  /** The message of the only error, or undefined without one; the errors themselves if there are more. */
  message: unknown
}

type Options = { token?: string | null; headers?: Record<string, string> }

/** Sends one operation over real HTTP. */
export async function graphql(
  server: Pick<TestServer, 'url' | 'token'>,
  query: string,
  variables: Record<string, unknown> = {},
  options: Options = {},
): Promise<GraphQLAnswer> {
  const { status, headers, text } = await send(`${server.url}/graphql`, toPost(server, { query, variables }, options))
  const { data, errors }: Pick<GraphQLAnswer, 'data' | 'errors'> = JSON.parse(text)
  const message = errors && errors.length > 1 ? errors : errors?.[0]?.message
  return { status, headers, data, errors, message }
}

const toPost = (
  server: Pick<TestServer, 'url' | 'token'>,
  body: unknown,
  { token = server.token, headers = {} }: Options,
) => ({
  method: 'POST',
  headers: {
    'Content-Type': 'application/json',
    ...credentialHeaders(server, token),
    ...headers,
  },
  body: typeof body === 'string' ? body : JSON.stringify(body),
})

/** Sends any body over real HTTP. */
export const post = (
  server: Pick<TestServer, 'url' | 'token'>,
  body: unknown,
  options: Options = {},
): Promise<Response> => fetch(`${server.url}/graphql`, toPost(server, body, options))

/** Returns the tRPC caller of the token's holder, for comparison. */
export function callerOf(server: TestServer, token = server.token): Caller {
  const { deps } = server.service
  const credentials = credentialsOf(`Bearer ${token}`)
  const whoAsks = () => deps.actors.of(credentials)
  return createCaller({
    deps,
    requestId: 'test',
    authenticate: whoAsks,
    person: () => deps.actors.person(credentials),
    client: { address: undefined, userAgent: undefined },
    cookie: undefined,
    requireOwnPage: () => {},
    setCookie: () => {},
    authenticateAgain: whoAsks,
    identify: async () => ({ actor: await whoAsks() }),
    gone: () => new AbortController().signal,
    streamTo: (actor) => deps.revocations.watch(actor, new AbortController()),
    idempotency: null,
    onAccepted: null,
    precondition: null,
  })
}

/** Returns the error of a call that must fail. */
export const refusal = (call: Promise<unknown>): Promise<{ message: string; status: number }> =>
  call.then(
    () => Promise.reject(new Error('It was not refused')),
    (error) => toAppError(error),
  )

/** Yields the `data` of each `next` event of a subscription, until `complete`. Calls `started` once it is open. */
export async function* subscribe(
  server: Pick<TestServer, 'url' | 'token'>,
  query: string,
  variables: Record<string, unknown>,
  options: Options & { signal?: AbortSignal; started?: () => void } = {},
): AsyncGenerator<any> {
  const { token = server.token, signal, started } = options
  const response = await fetch(`${server.url}/graphql`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream', ...credentialHeaders(server, token) },
    body: JSON.stringify({ query, variables }),
    ...(signal && { signal }),
  })
  started?.()
  let text = ''
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const [, event, data] = /^event: (.*)\ndata:(.*)$/s.exec(text.slice(0, end)) ?? []
      text = text.slice(end + 2)
      if (event === 'complete') return
      if (event === 'next') yield JSON.parse(data ?? '')
    }
  }
  throw new Error('The stream broke off')
}

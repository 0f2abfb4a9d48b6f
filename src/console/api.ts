import {
  createTRPCUntypedClient,
  httpBatchLink,
  httpLink,
  httpSubscriptionLink,
  splitLink,
  TRPCClientError,
} from '@trpc/client'
import type { inferRouterInputs, inferRouterOutputs } from '@trpc/server'
import type { AppRouter } from '../router.ts'
import type { ErrorShape } from '../wire.ts'
import { setClock } from './lib/clock.ts'
import { asSentence, inPageWords, type Refusal, refusalIn } from './lib/refusals.ts'
import { readStored, store } from './lib/storage.ts'
import { texts } from './texts.ts'

/** The path below which the service is mounted: empty, or `/muster`. */
export const BASE = document.documentElement.dataset.base ?? ''

export type Inputs = inferRouterInputs<AppRouter>
export type Outputs = inferRouterOutputs<AppRouter>

type PathOf<Resource extends keyof Outputs> = `${Resource}.${keyof Outputs[Resource] & string}`
/** Names a procedure, such as `agents.list`. */
export type Path = { [Resource in keyof Outputs]: PathOf<Resource> }[keyof Outputs]
type At<Tree, Name extends Path> = Name extends `${infer Resource extends keyof Tree & string}.${infer Leaf}`
  ? Leaf extends keyof Tree[Resource]
    ? Tree[Resource][Leaf]
    : never
  : never
export type Input<Name extends Path> = At<Inputs, Name>
export type Output<Name extends Path> = At<Outputs, Name>

const KEY = 'muster.organization'

let chosen: string | null = null

/**
 * Remembers the organization that the person has selected: in this tab, because another tab may be in another
 * organization, and for new tabs. The server checks the membership at every request.
 */
export const chosenOrganization = {
  get: (): string | null => chosen ?? readStored('sessionStorage', KEY) ?? readStored('localStorage', KEY),
  set(id: string) {
    chosen = id
    store('sessionStorage', KEY, id)
    store('localStorage', KEY, id)
  },
}

/** The headers of every request: the organization, and the mark of a page of this service. */
const headers = (): Record<string, string> => {
  const organization = chosenOrganization.get()
  return { 'X-Muster-Request': '1', ...(organization && { 'X-Organization': organization }) }
}

const url = `${BASE}/trpc`

type Keyed = { key?: string }

/** The headers of a mutation, which may have an Idempotency-Key. */
const headersOf = ({ op }: { op: { context: Keyed } }) => ({
  ...headers(),
  ...(op.context.key && { 'Idempotency-Key': op.context.key }),
})

/** Time after which a request without an answer has failed (ms). The server itself may wait 60 s for an MCP server. */
const PATIENCE = 90_000

/** Slowest network over which a large request, such as a file of a space, still arrives (bytes per ms). */
const SLOWEST = 10

/**
 * Sends a request. Throws if no answer begins in time: a connection that a network has cut silently would hang for
 * ever. A change may have been made nevertheless.
 */
const fetchInTime: typeof fetch = async (input, init) => {
  const late = new AbortController()
  const size = typeof init?.body === 'string' ? init.body.length : 0
  const timer = setTimeout(() => late.abort(), PATIENCE + size / SLOWEST)
  const signal = init?.signal ? AbortSignal.any([init.signal, late.signal]) : late.signal
  try {
    return await fetch(input, { ...init, signal })
  } catch (error) {
    if (!late.signal.aborted) throw error
    const isRead = (init?.method ?? 'GET') === 'GET'
    throw new RestError({ ...UNREACHABLE, message: texts.late.title, detail: texts.late[isRead ? 'read' : 'change'] })
  } finally {
    clearTimeout(timer)
  }
}

/** Sends a request of tRPC, whose client says nothing about an answer that is not JSON, such as the page of a proxy. */
const fetchJson: typeof fetch = async (input, init) => {
  const response = await fetchInTime(input, init)
  if (response.headers.get('Content-Type')?.includes('json')) return response
  throw new RestError(failureOfProxy(response.status))
}

export const client = createTRPCUntypedClient<AppRouter>({
  links: [
    splitLink({
      condition: ({ type }) => type === 'subscription',
      // An EventSource cannot send custom headers, so the URL names the organization.
      true: httpSubscriptionLink({
        url: () => `${url}?organization=${encodeURIComponent(chosenOrganization.get() ?? '')}`,
      }),
      false: splitLink({
        // A query that waits for another server would hold back the others of its batch.
        condition: ({ type, path }) => type === 'mutation' || path === 'mcps.tools',
        true: httpLink({ url, headers: headersOf, fetch: fetchJson }),
        false: httpBatchLink({ url, headers, fetch: fetchJson, maxItems: 10 }),
      }),
    }),
  ],
})

/** Calls a query. */
export const callQuery = <Name extends Path>(
  name: Name,
  input: Input<Name>,
  signal?: AbortSignal,
): Promise<Output<Name>> => client.query(name, input, { signal }) as Promise<Output<Name>>

/** Calls a mutation. `key`: the Idempotency-Key of a call that may be repeated. */
export const callMutation = <Name extends Path>(
  name: Name,
  input: Input<Name>,
  context: Keyed = {},
): Promise<Output<Name>> => client.mutation(name, input, { context }) as Promise<Output<Name>>

/** Describes a failure: the problem, the remedy, and the status (0 without a connection). */
export type Failure = { message: string; detail: string | null; status: number; code: string | null }

const UNREACHABLE: Failure = { message: texts.noConnection, detail: null, status: 0, code: null }

/**
 * Describes an answer that is not of the service, such as the page of a proxy. It says nothing about the session or the
 * rights of the person.
 */
function failureOfProxy(status: number): Failure {
  if (status >= 500) return { ...UNREACHABLE, detail: texts.proxy.down(status) }
  const detail = texts.proxy.details[status] ?? texts.proxy.otherwise
  return { ...UNREACHABLE, message: texts.proxy.refused(status), detail }
}

/**
 * Leaves out what an answer says to programs only: how to authorize a request, and which field to send instead, whose
 * name stands between backticks.
 */
function forPeople(failure: Failure): Failure {
  if (failure.status === 401) return { ...failure, message: texts.signedOut, detail: null }
  // A page has no token, whose organization a program should check.
  if (failure.status === 404 && failure.detail?.includes('token'))
    return { ...failure, message: inPageWords(failure.message), detail: texts.gone }
  const isForPrograms = failure.status === 400 && /`[a-z][\w. -]*`/i.test(failure.detail ?? '')
  const detail = isForPrograms ? null : (failure.detail?.replaceAll('`', '') ?? null)
  return { ...failure, message: inPageWords(failure.message), detail }
}

/** Returns the field that a failure names, and the reason in the words of a page. Null if it names none. */
export function refusalOf(error: unknown): Refusal | null {
  const { message, detail, status } = toFailure(error)
  return status === 400 ? refusalIn(message, detail) : null
}

/** Describes a failure in one line. */
export function describeFailure(error: unknown): string {
  const refusal = refusalOf(error)
  if (refusal) return texts.fields.of(refusal.field, refusal.reason)
  const { message, detail } = toFailure(error)
  return detail ? `${asSentence(message)} ${detail}` : message
}

/** Converts any error of a request or a page. */
export function toFailure(error: unknown): Failure {
  if (error instanceof TRPCClientError) {
    const data = error.data as ErrorShape['data'] | undefined
    if (!data) return error.cause instanceof RestError ? error.cause.failure : UNREACHABLE
    const { detail = null, httpStatus: status, errorCode: code } = data
    return forPeople({ message: error.message, detail, status, code })
  }
  if (error instanceof RestError) return error.failure
  // The error of `fetch` without an answer, and of an import.
  if (error instanceof TypeError) return UNREACHABLE
  // A form refuses its own input.
  return { message: error instanceof Error ? error.message : String(error), detail: null, status: 400, code: null }
}

class RestError extends Error {
  readonly failure: Failure
  constructor(failure: Failure) {
    super(failure.message)
    this.failure = failure
  }
}

/** Calls a REST route without a procedure: uploads and sessions. Throws errors for {@link toFailure}. */
export async function rest<Answer>(
  method: string,
  path: string,
  body?: object | FormData,
  sent = headers(),
): Promise<Answer> {
  const isForm = body instanceof FormData
  // An upload takes as long as the network of the person.
  const send = isForm ? fetch : fetchInTime
  const response = await send(BASE + path, {
    method,
    headers: { ...sent, ...(body && !isForm && { 'Content-Type': 'application/json' }) },
    ...(body && { body: isForm ? body : JSON.stringify(body) }),
  })
  setClock(response)
  const { status } = response
  const answer = status === 204 ? {} : await response.json().catch(() => null)
  if (response.ok && answer) return answer as Answer
  if (typeof answer?.message !== 'string') throw new RestError(failureOfProxy(status))
  const { message, detail = null, code = null } = answer
  throw new RestError(forPeople({ message, detail, status, code }))
}

import { STATUS_CODES } from 'node:http'
import { expect } from 'vitest'
import { z } from 'zod'
import { unwrap } from '../../src/lib/fields.ts'
import { appRouter } from '../../src/router.ts'
import { ERROR_CODES } from '../../src/wire.ts'
import { onPostgres } from './postgres-shared.ts'
import { type Answer, request } from './rest.ts'
import type { TestServer } from './server.ts'

type Input = Record<string, unknown>
type Target = Pick<TestServer, 'url' | 'token'>
type Options = { token?: string | null; headers?: Record<string, string> }
type Route = { method: string; path: string }
type Procedure = {
  _def: {
    type: 'query' | 'mutation' | 'subscription'
    meta: { openapi?: Route; scopes?: string[]; admits?: string }
    inputs?: z.ZodType[]
  }
}

/** Every procedure by its dotted name, as in the router. */
export const procedures = appRouter._def.procedures as unknown as Record<string, Procedure>

/** REST's name for the kind of a procedure without a path. */
const BRIDGES: Record<string, Route> = {
  'approvals.changes': { method: 'GET', path: '/api/v1/approvals/events' },
  'chats.events': { method: 'GET', path: '/api/v1/chats/{id}/events' },
  'events.follow': { method: 'GET', path: '/api/v1/events/stream' },
  'executions.events': { method: 'GET', path: '/api/v1/executions/{executionId}/events' },
  'tasks.changes': { method: 'GET', path: '/api/v1/tasks/events' },
}

/**
 * Keeps the fields of the procedure's input. REST refuses others in a query, and tables contain fields of other
 * procedures.
 */
function knownOf(name: string, input: Input): Input {
  const inputs = procedures[name]?._def.inputs?.map(unwrap) ?? []
  const shapes = inputs.map((schema) => (schema instanceof z.ZodObject ? schema.shape : {}))
  return Object.fromEntries(Object.entries(input).filter(([field]) => shapes.some((shape) => field in shape)))
}

/** Calls a procedure over REST: path parameters come from the input, the rest goes into the query or the body. */
async function rest(server: Target, name: string, input: Input = {}, options: Options = {}): Promise<Answer> {
  const { method, path } = procedures[name]?._def.meta.openapi ?? BRIDGES[name] ?? { method: 'GET', path: name }
  const left = { ...input }
  const filled = path.replace(/{(\w+)}/g, (_, parameter: string) => {
    const value = String(left[parameter])
    delete left[parameter]
    return encodeURIComponent(value)
  })
  const inQuery = method === 'GET' || method === 'DELETE'
  const query = inQuery && new URLSearchParams(knownOf(name, left) as Record<string, string>).toString()
  return request(server, method, query ? `${filled}?${query}` : filled, { ...options, ...(!inQuery && { body: left }) })
}

/**
 * Calls a procedure over tRPC. `body` is the result, or the `data` of an error: the fields of REST's error body and
 * tRPC's own. For a subscription it is the first event, because its errors are in the stream.
 */
async function trpc(server: Target, name: string, input: unknown = {}, options: Options = {}): Promise<Answer> {
  const { type } = procedures[name]?._def ?? { type: 'query' }
  const json = JSON.stringify(input)
  const path = type === 'mutation' ? `/trpc/${name}` : `/trpc/${name}?input=${encodeURIComponent(json)}`
  const body = type === 'mutation' && { body: json }
  const answer = await request(server, body ? 'POST' : 'GET', path, { ...options, ...body })
  const message = typeof answer.body === 'string' ? firstOf(answer.body) : answer.body
  const { data = message } = message?.result ?? message?.error ?? message
  return { ...answer, status: data.statusCode ?? answer.status, body: data }
}

/** The first event of a tRPC event stream, after its greeting. */
const firstOf = (text: string): { data?: any } => JSON.parse(text.split('\n\n')[1]?.match(/^data: (.*)$/m)?.[1] ?? '{}')

/** The APIs with procedures by name, for tables. */
export const apis = { REST: rest, tRPC: trpc }
export type Api = keyof typeof apis

/** The APIs to test: on PostgreSQL only REST, since tRPC calls the same procedures. */
export const APIS: Api[] = onPostgres ? ['REST'] : ['REST', 'tRPC']

/** Combines each API with each row of a table. */
export const onEachApi = <const Row extends readonly unknown[]>(rows: readonly Row[]): [Api, ...Row][] =>
  APIS.flatMap((api) => rows.map((row): [Api, ...Row] => [api, ...row]))

/**
 * Returns a function that calls REST below `/api/v1`, as `who` unless a call names another person, and with an
 * Idempotency-Key if a call has one.
 */
export const callerAt =
  (server: Target, who: Pick<Target, 'token'> = server) =>
  (
    method: string,
    path: string,
    body?: unknown,
    { token = who.token, key }: { token?: string; key?: string } = {},
  ): Promise<Answer> =>
    request(server, method, `/api/v1${path}`, { token, body, ...(key && { headers: { 'Idempotency-Key': key } }) })

/** Returns a function that calls a procedure over an API as one of `people`, who is ann unless a call names another. */
export const callerAs =
  <Who extends string>(server: Target, people: Record<Who | 'ann', Pick<Target, 'token'>>) =>
  (api: Api, procedure: string, input: Input = {}, who: Who | 'ann' = 'ann'): Promise<Answer> =>
    apis[api](server, procedure, input, { token: people[who].token })

/** Expects a success. Returns its body. */
export async function ok(answer: Promise<Answer>): Promise<any> {
  const { status, body } = await answer
  expect(status, JSON.stringify(body)).toBe(200)
  return body
}

/** Creates an agent that all members may run. Returns its id. */
export async function createAgent(server: Target, fields: object = {}): Promise<string> {
  const body = { name: 'Ada', systemPrompt: 'You are Ada.', ...fields }
  return (await ok(request(server, 'POST', '/api/v1/agents', { body }))).id
}

const BODY = ['error', 'message', 'code', 'detail', 'executionId', 'requestId', 'statusCode', 'statusMessage']
const TRPC_DATA = [...BODY, 'errorCode', 'httpStatus', 'path']

/** Returns the message of a 400 for a required field that is missing. */
export const missing = (field: string): string => `Missing required field: ${field}`

/** Returns the message of a 400 for a field whose value is not `expected`. */
export const invalid = (field: string, expected: string): string =>
  `Invalid value for field: ${field}. Expected ${expected}`

/**
 * Checks an error against contract.md section 1 and contract-2.md section 1.1. Refuses any further field, on either
 * API.
 */
export function expectError({ status, headers, body }: Answer, statusCode: number, message: string): void {
  const requestId = headers.get('x-request-id')
  expect({ status, ...body }).toMatchObject({ status: statusCode, error: true, statusCode, message, requestId })
  expect(body.statusMessage).toBe(STATUS_CODES[statusCode])
  const isTrpc = 'httpStatus' in body
  const allowed = isTrpc ? TRPC_DATA : BODY
  expect(ERROR_CODES).toContain(isTrpc ? body.errorCode : body.code)
  expect(allowed).toEqual(expect.arrayContaining(Object.keys(body)))
  expect(headers.get('content-type')).toMatch(/^application\/json|^text\/event-stream/)
}

import { initTRPC } from '@trpc/server'
import type { OpenApiMeta } from 'trpc-to-openapi'
import { z } from 'zod'
import { type Actor, requireScope } from './auth/actor.ts'
import type { Person } from './auth/actors.ts'
import { requestOf } from './auth/audit.ts'
import { actorIn, type Identity, type IdTokenUser } from './auth/identity.ts'
import { covers, type Scope } from './auth/scopes.ts'
import type { Client } from './auth/sessions.ts'
import type { Deps } from './deps.ts'
import { forbidden, lacksScopes, toBody, unavailable } from './errors.ts'
import type { ExecutionRow } from './executions/engine/events/events.ts'
import type { IdempotencyKey, Precondition } from './idempotency.ts'
import { checkInput } from './lib/fields.ts'
import { describeIssue } from './lib/input-issues.ts'
import { find as findSpace } from './spaces/service.ts'
import { fromTRPCError, requestIds, toTRPCError } from './trpc-errors.ts'
import type { ErrorShape } from './wire.ts'

z.config({ customError: describeIssue })

/** Context of a procedure in every API: the caller (authenticated once, on demand), and the dependencies. */
export type Context = {
  readonly deps: Deps
  readonly requestId: string
  /**
   * Returns the holder of a personal access token, checked anew after a body that arrived later. Throws the 401s and
   * 403s of contract.md section 1.
   */
  readonly authenticate: () => Promise<Actor>
  /** Authenticates again, because a waiting request may outlive its token. */
  readonly authenticateAgain: () => Promise<Actor>
  /** The caller in an organization, which may hold an ID token if the input names the organization. */
  readonly identify: () => Promise<Identity>
  /** The caller apart from any organization. Throws the 401s. */
  readonly person: () => Promise<Person>
  /** The other end of the connection. */
  readonly client: Client
  /** The secret in the cookie of a browser, if there is one. */
  readonly cookie: string | undefined
  /** Throws 403 unless the request comes from a page of this service (contract-2.md section 3.1). */
  readonly requireOwnPage: () => void
  /** Counts further calls of a request that has several. Throws 429 beyond RATE_LIMIT. */
  readonly countCalls?: ((actor: Actor, calls: number) => Promise<void>) | null | undefined
  /** Counts a run that a caller starts. Throws 429 beyond EXECUTE_RATE_LIMIT. */
  readonly countRun?: ((actor: Actor) => Promise<void>) | null | undefined
  /** Gives the browser the secret of its session; an empty one deletes the cookie. */
  readonly setCookie: (secret: string) => void
  /** A signal that aborts when the client disconnects, created on first use. */
  readonly gone: () => AbortSignal
  /**
   * Returns the signal of a stream: it also aborts when the caller loses access. A client that does not read for long,
   * or does not take the rest in time, is disconnected.
   */
  readonly streamTo: (actor: Actor) => AbortSignal
  /** Reads for the response of the request; null unless it ends with the result of the read. See http/large-reads.ts. */
  readonly readInTurn?: (<Result>(actor: Actor, read: () => Promise<Result>) => Promise<Result>) | null | undefined
  /** Key of a POST; of other requests if the procedure has its own transaction. */
  readonly idempotency: IdempotencyKey | null
  /** Check of an If-Match, for a procedure with its own transaction. Throws 412. */
  readonly precondition: Precondition | null
  /** Called with the run that a request has started, or joined by its key, as soon as there is one. */
  readonly onAccepted: ((row: ExecutionRow, actor: Actor) => void) | null
}

type Described = {
  scopes?: readonly Scope[]
  /** Whether it starts a run. */
  startsRun?: boolean
  /** Conditions of statuses that do not follow from method, path and input (http/openapi.ts). */
  errors?: Readonly<Record<number, string>>
  /** The callers that it accepts, unless that is a caller in an organization: a user without one, or everyone. */
  admits?: 'person' | 'everybody'
  /** The tool at /mcp that calls it. */
  mcp?: McpTool
}

/** A tool of the MCP server (contract-2.md section 6.1). Its schemas and scopes are those of the procedure. */
export type McpTool = {
  name: string
  /** Fields of the input that the tool takes, separated by spaces. */
  inputs: string
  /** Description for models. Default: the summary of the REST operation. */
  description?: string
  /** Whether it overwrites or ends something. */
  destroys?: boolean
  /** Whether a repetition with the same arguments changes nothing more. */
  repeats?: boolean
}

/** An interface, because interfaces stay names in the router's type and the typed client can leave them out. */
export interface Meta extends OpenApiMeta<Described> {}

const t = initTRPC
  .context<Context>()
  .meta<Meta>()
  .create({
    isDev: false,
    // A client whose connection is silently dead reconnects after three missing pings.
    sse: { ping: { enabled: true, intervalMs: 15_000 }, client: { reconnectAfterInactivityMs: 45_000 } },
    errorFormatter({ shape, error, ctx }): ErrorShape {
      const { code, path } = shape.data
      const { code: errorCode, ...body } = toBody(fromTRPCError(error), ctx?.requestId ?? requestIds.get(error) ?? '')
      const data = { code, httpStatus: body.statusCode, ...(path && { path }), ...body, errorCode }
      return { code: shape.code, message: body.message, data }
    },
  })

/**
 * The outermost middleware: all failures of input, policy or service leave as AppError. A call without an input has an
 * empty one, like a request without a body, so that the error names the first missing field.
 */
const errors = t.middleware(async ({ next, getRawInput }) => {
  const getInput = async () => (await getRawInput()) ?? {}
  const result = await next({ getRawInput: getInput })
  if (result.ok) return result
  const input = result.error.cause instanceof z.core.$ZodError ? await getInput() : undefined
  throw toTRPCError(fromTRPCError(result.error, input))
})

/** Adds the request to an actor, for the audit log. */
export const asRequested = (context: Pick<Context, 'requestId' | 'client'>, actor: Actor): Actor => ({
  ...actor,
  request: requestOf(context),
})

/**
 * Authenticates a caller again after a body that may have arrived long after the first check. Throws 401 and 403, and
 * 503 if the role has changed meanwhile.
 */
export async function recheck({ authenticate }: Pick<Context, 'authenticate'>, { role }: Actor): Promise<void> {
  if ((await authenticate()).role !== role) throw unavailable()
}

const authenticated = t.middleware(async ({ ctx, meta, type, getRawInput, next }) => {
  const caller = await ctx.authenticate()
  if (meta?.scopes?.length) requireScope(caller, ...meta.scopes)
  checkInput(await getRawInput())
  // The body may have arrived long after the first check.
  const actor = await ctx.authenticate()
  if (type === 'query' && ctx.readInTurn) return ctx.readInTurn(actor, () => next({ ctx: { actor } }))
  return next({ ctx: { actor: type === 'mutation' ? asRequested(ctx, actor) : actor } })
})

/**
 * Begins a procedure for holders of a token (or ID token) with any of these scopes; without scopes any token is
 * sufficient.
 */
export const tokenProcedure = (...scopes: Scope[]) => t.procedure.use(errors).meta({ scopes }).use(authenticated)

/**
 * Begins a procedure of the public directory (contract-2.md section 1.15): for holders of a token with any of these
 * scopes, and for everyone if PUBLIC_DIRECTORY is set.
 */
export const directoryProcedure = (...scopes: Scope[]) =>
  t.procedure
    .use(errors)
    .meta({ scopes })
    .use(async ({ ctx, getRawInput, next }) => {
      if (!ctx.deps.settings.PUBLIC_DIRECTORY) requireScope(await ctx.authenticate(), ...scopes)
      checkInput(await getRawInput())
      return next()
    })

/**
 * Begins a procedure for a user apart from any organization: with a browser session, an ID token, or a token with any
 * of these scopes. A POST of it must come from a page of this service.
 */
export const personProcedure = (...scopes: Scope[]) =>
  t.procedure
    .use(errors)
    .meta({ scopes, admits: 'person' })
    .use(async ({ ctx, meta, getRawInput, next }) => {
      const found = await ctx.person()
      if (scopes.length && !scopes.some((scope) => covers(found.scopes, scope))) throw lacksScopes(scopes)
      if (meta?.openapi?.method === 'POST') ctx.requireOwnPage()
      checkInput(await getRawInput())
      return next({ ctx: { person: await ctx.person() } })
    })

/** Begins a procedure that signs a person in or out: for everyone, from a page of this service. */
export const publicProcedure = () =>
  t.procedure
    .use(errors)
    .meta({ admits: 'everybody' })
    .use(async ({ ctx, getRawInput, next }) => {
      ctx.requireOwnPage()
      checkInput(await getRawInput())
      return next()
    })

type PlaceField = 'spaceId' | 'orgId'

const identified = (field: PlaceField) =>
  t.middleware(async ({ ctx, meta, type, getRawInput, next }) => {
    const actor = await actorAt(ctx, field, meta?.scopes ?? [], await getRawInput())
    return next({ ctx: { actor: type === 'mutation' ? asRequested(ctx, actor) : actor } })
  })

/**
 * Returns the caller in the place that an input field names: the holder of a token with any of these scopes, or of an
 * ID token. Throws 401, 403 and 404 according to contract.md sections 1 and 6.
 */
export async function actorAt(
  ctx: Pick<Context, 'deps' | 'identify'>,
  field: PlaceField,
  scopes: readonly Scope[],
  input: unknown,
): Promise<Actor> {
  const identity = await ctx.identify()
  if ('actor' in identity) requireScope(identity.actor, ...scopes)
  checkInput(input)
  const actor = 'actor' in identity ? identity.actor : await userAt(ctx.deps, field, input, identity)
  const { orgId } = z.object({ orgId: z.unknown().optional() }).parse(input ?? {})
  if (typeof orgId === 'string' && orgId !== actor.organizationId) throw forbidden()
  return actor
}

/** Returns the holder of an ID token in the place that the input field names. */
async function userAt(deps: Deps, field: PlaceField, input: unknown, who: IdTokenUser): Promise<Actor> {
  const place = z.object({ [field]: z.string() }).parse(input ?? {}) as Record<PlaceField, string>
  const actor = await actorIn(deps.db, place, who)
  if (field === 'spaceId') await findSpace(actor, deps, place.spaceId)
  return actor
}

/**
 * Begins a procedure of section F (contract.md section 6). It admits a token with any of these scopes, and an ID token.
 * An ID token acts in the organization, or the organization of the space, that the input field names. Throws 403 if an
 * `orgId` in the input differs.
 */
export const idTokenProcedure = (field: PlaceField, ...scopes: Scope[]) =>
  t.procedure.use(errors).meta({ scopes }).use(identified(field))

/**
 * Returns the REST metadata of a procedure. http/openapi.ts adds its tag, id and common errors; `errors` lists further
 * statuses and their meanings.
 */
export const restMeta = (
  method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE',
  path: `/api/${string}`,
  summary: string,
  errors: Readonly<Record<number, string>> = {},
): Meta => ({ openapi: { method, path, summary, errorResponses: [] }, errors })

/** Returns the metadata of a procedure that is a tool at /mcp. */
export const mcpTool = (name: string, inputs: string, options: Omit<McpTool, 'name' | 'inputs'> = {}): Meta =>
  ({ mcp: { name, inputs, ...options } }) as Meta

/** Metadata of a procedure that starts a run. */
export const STARTS_RUN: Meta = { startsRun: true } as Meta

export const router = t.router

export const createCallerFactory = t.createCallerFactory

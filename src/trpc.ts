import { initTRPC, type TRPC_ERROR_CODE_KEY, TRPCError } from '@trpc/server'
import type { OpenApiMeta } from 'trpc-to-openapi'
import { z } from 'zod'
import { type Actor, requireScope } from './auth/actor.ts'
import { actorIn, type Identity, type IdTokenUser } from './auth/identity.ts'
import type { Scope } from './auth/scopes.ts'
import type { Deps } from './deps.ts'
import {
  AppError,
  badRequest,
  bodyTooLarge,
  describeIssue,
  forbidden,
  invalidJson,
  noSuchPath,
  toAppError,
  toBody,
  unsupportedType,
} from './errors.ts'
import type { ExecutionRow } from './executions/engine/events/events.ts'
import type { IdempotencyKey, Precondition } from './idempotency.ts'
import { checkInput } from './lib/fields.ts'
import { find as findSpace } from './spaces/service.ts'
import type { ErrorShape } from './wire.ts'

z.config({ customError: describeIssue })

/** What every face gives a procedure: who asks (found out once, at the first need), and what the service is made of. */
export type Context = {
  readonly deps: Deps
  readonly requestId: string
  /** The holder of a personal access token. Throws the 401s and 403s of contract.md section 1. */
  readonly authenticate: () => Promise<Actor>
  /** The same, looked up anew: a request that waits may outlive its token. */
  readonly authenticateAgain: () => Promise<Actor>
  /** The same, or the holder of an ID token where those are taken. */
  readonly identify: () => Promise<Identity>
  /** A signal that aborts when the caller has gone away; made when it is asked for. */
  readonly gone: () => AbortSignal
  /**
   * That signal, for a stream that somebody follows: from now on it aborts, too, once they may follow it no more. Who takes
   * nothing of the stream for long, or a moment later has not taken what was left of it, is cut off.
   */
  readonly streamTo: (actor: Actor) => AbortSignal
  /** Of a REST POST with an Idempotency-Key; of other requests where the procedure has a transaction of its own. */
  readonly idempotency: IdempotencyKey | null
  /** The check of an If-Match, for a procedure that has a transaction of its own. Throws 412. */
  readonly precondition: Precondition | null
  /** Is told of the run that a request has begun, or has joined by its key, as soon as there is one. */
  readonly onAccepted: ((row: ExecutionRow, actor: Actor) => void) | null
}

type Described = {
  scopes?: readonly Scope[]
  /** When it gives which status, beyond what can be told from its method, path and input (http/openapi.ts). */
  errors?: Readonly<Record<number, string>>
}

/** An interface, since that stays a name in the type of the router: the typed client leaves it out. */
export interface Meta extends OpenApiMeta<Described> {}

const t = initTRPC
  .context<Context>()
  .meta<Meta>()
  .create({
    isDev: false,
    // A client whose connection is silently dead comes back, once three pings have not come.
    sse: { ping: { enabled: true, intervalMs: 15_000 }, client: { reconnectAfterInactivityMs: 45_000 } },
    errorFormatter({ shape, error, ctx }): ErrorShape {
      const { code, path } = shape.data
      const { code: errorCode, ...body } = toBody(fromTRPCError(error), ctx?.requestId ?? requestIds.get(error) ?? '')
      const data = { code, httpStatus: body.statusCode, ...(path && { path }), ...body, errorCode }
      return { code: shape.code, message: body.message, data }
    },
  })

/** Of errors that tRPC makes before it asks for a context. */
export const requestIds = new WeakMap<TRPCError, string>()

const CODES: Record<number, TRPC_ERROR_CODE_KEY> = {
  400: 'BAD_REQUEST',
  401: 'UNAUTHORIZED',
  403: 'FORBIDDEN',
  404: 'NOT_FOUND',
  405: 'METHOD_NOT_SUPPORTED',
  409: 'CONFLICT',
  412: 'PRECONDITION_FAILED',
  413: 'PAYLOAD_TOO_LARGE',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  422: 'UNPROCESSABLE_CONTENT',
  429: 'TOO_MANY_REQUESTS',
  502: 'BAD_GATEWAY',
  503: 'SERVICE_UNAVAILABLE',
}

/** The same error for tRPC, the original as its cause: {@link toAppError} finds it there again. */
export const toTRPCError = (error: AppError): TRPCError =>
  new TRPCError({ code: CODES[error.status] ?? 'INTERNAL_SERVER_ERROR', message: error.message, cause: error })

/**
 * What a caller may see of an error that left tRPC or trpc-to-openapi: ours, or one that they made themselves (of what
 * they could not read or find). What does not fit an output schema is our fault, not the caller's.
 */
export function fromTRPCError(error: unknown): AppError {
  if (error instanceof TRPCError && error.cause instanceof AppError) return error.cause
  const isOutput = error instanceof TRPCError && error.message === 'Output validation failed'
  const ours = toAppError(isOutput ? new Error(error.message, { cause: error.cause?.message }) : error)
  if (ours.status !== 500 || !(error instanceof TRPCError)) return ours
  // Of the input, when it is read. Any other is of the service.
  const isSyntax = error.code === 'BAD_REQUEST' && error.cause instanceof SyntaxError
  const code = isSyntax ? 'PARSE_ERROR' : error.code
  const theirs = THEIRS[code]?.() ?? ours
  return new AppError(theirs.status, theirs.message, { cause: error, code: theirs.code })
}

const THEIRS: { [Code in TRPC_ERROR_CODE_KEY]?: () => AppError } = {
  PARSE_ERROR: () => invalidJson(),
  BAD_REQUEST: () => badRequest('Malformed tRPC request'),
  NOT_FOUND: noSuchPath,
  METHOD_NOT_SUPPORTED: () =>
    new AppError(405, 'Method not allowed', { detail: 'Queries are GET, mutations are POST' }),
  PAYLOAD_TOO_LARGE: () => bodyTooLarge(),
  UNSUPPORTED_MEDIA_TYPE: () => unsupportedType(),
}

/** First of all middlewares, before any input parser: whatever fails, in input, policy or service, leaves as AppError. */
const errors = t.middleware(async ({ next }) => {
  const result = await next()
  if (!result.ok) throw toTRPCError(fromTRPCError(result.error))
  return result
})

/** Adds the request to an actor, for the audit log. */
export const asRequested = ({ requestId: id }: Context, actor: Actor): Actor => ({
  ...actor,
  request: { id, address: undefined },
})

const authenticated = t.middleware(async ({ ctx, meta, type, getRawInput, next }) => {
  const actor = await ctx.authenticate()
  if (meta?.scopes?.length) requireScope(actor, ...meta.scopes)
  checkInput(await getRawInput())
  return next({ ctx: { actor: type === 'mutation' ? asRequested(ctx, actor) : actor } })
})

/** A procedure for holders of a token (or ID token) with any of these scopes; none given means any token at all. */
export const token = (...scopes: Scope[]) => t.procedure.use(errors).meta({ scopes }).use(authenticated)

/**
 * A procedure of the public directory (contract-2.md section 1.15): for holders of a token with any of these scopes, and
 * for everybody where PUBLIC_DIRECTORY says so.
 */
export const directory = (...scopes: Scope[]) =>
  t.procedure
    .use(errors)
    .meta({ scopes })
    .use(async ({ ctx, getRawInput, next }) => {
      if (!ctx.deps.settings.PUBLIC_DIRECTORY) requireScope(await ctx.authenticate(), ...scopes)
      checkInput(await getRawInput())
      return next()
    })

type PlaceField = 'spaceId' | 'orgId'

const identified = (field: PlaceField) =>
  t.middleware(async ({ ctx, meta, getRawInput, next }) =>
    next({ ctx: { actor: await actorAt(ctx, field, meta?.scopes ?? [], await getRawInput()) } }),
  )

/**
 * Finds who asks in the place that a field of the input names: the holder of a token with any of these scopes, or of an ID
 * token. Throws 401, 403 and 404 as contract.md sections 1 and 6 say.
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

/** Who the holder of an ID token is in the place that the field of the input names. */
async function userAt(deps: Deps, field: PlaceField, input: unknown, who: IdTokenUser): Promise<Actor> {
  const place = z.object({ [field]: z.string() }).parse(input ?? {}) as Record<PlaceField, string>
  const actor = await actorIn(deps.db, place, who)
  if (field === 'spaceId') await findSpace(actor, deps, place.spaceId)
  return actor
}

/**
 * A procedure of section F (contract.md section 6): for holders of a token with any of these scopes, and of an ID token,
 * which acts in the organization of the space, or in the organization, that this field of the input names. An `orgId`
 * in the input must be that organization, else 403.
 */
export const idToken = (field: PlaceField, ...scopes: Scope[]) =>
  t.procedure.use(errors).meta({ scopes }).use(identified(field))

/**
 * The REST side of a procedure. Its tag, its id and the errors that anything like it can give are added in
 * http/openapi.ts; `errors` says when it gives another status, or what one means here.
 */
export const rest = (
  method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE',
  path: `/api/${string}`,
  summary: string,
  errors: Readonly<Record<number, string>> = {},
): Meta => ({ openapi: { method, path, summary, errorResponses: [] }, errors })

export const router = t.router
export const createCallerFactory = t.createCallerFactory

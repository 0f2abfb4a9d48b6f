import type { IncomingMessage, ServerResponse } from 'node:http'
import type { z } from 'zod'
import { type Actor, requireScope } from '../../auth/actor.ts'
import type { Scope } from '../../auth/scopes.ts'
import { methodNotAllowed } from '../../errors.ts'
import { readJson } from '../../http/body.ts'
import { noSuchPath } from '../../http/no-such-path.ts'
import { type IdempotencyKey, readKey } from '../../idempotency.ts'
import { checkInput } from '../../lib/fields.ts'
import { asRequested, type Context, recheck } from '../../trpc.ts'
import type { RouteMatch } from '../doors.ts'

/**
 * Authenticates the caller of a door, with the rules of the procedures: rate limits, and a token with any of the scopes
 * of the route. Throws 401, 403, 404, 405 and 429.
 */
export async function enter(context: Context, req: IncomingMessage, match: RouteMatch): Promise<Actor> {
  const scopes = scopesOf(req, match)
  const actor = await context.authenticate()
  if (scopes.length) requireScope(actor, ...scopes)
  return asRequested(context, actor)
}

/**
 * Returns the scopes of a request. Throws 404 for an unknown path, and 405 for a method that the route does not have.
 */
export function scopesOf({ method = '' }: IncomingMessage, { path, route: { methods } }: RouteMatch): readonly Scope[] {
  const scopes = methods[method === 'HEAD' ? 'GET' : method]
  if (scopes) return scopes
  const allowed = Object.keys(methods).flatMap((each) => (each === 'GET' ? ['GET', 'HEAD'] : each))
  throw allowed.length ? methodNotAllowed(allowed) : noSuchPath(path)
}

/**
 * Reads the body of a caller's request by a schema. Throws 400, 413 and 415, and the errors of {@link recheck}.
 */
export async function readBody<Schema extends z.ZodType>(
  { context, actor, req }: { context: Context; actor: Actor; req: IncomingMessage },
  schema: Schema,
): Promise<z.output<Schema>> {
  const body = await readJson(req)
  await recheck(context, actor)
  checkInput(body)
  return schema.parse(body)
}

/** Reads an answer that may be large when it is its turn. Throws 503 if that takes too long. */
export async function readWhole<Data>(
  { readInTurn }: Pick<Context, 'readInTurn'>,
  actor: Actor,
  read: () => Promise<Data>,
): Promise<Data> {
  return readInTurn ? (await readInTurn(actor, async () => ({ data: await read() }))).data : read()
}

/** Returns the Idempotency-Key of a POST, or null. Throws 400 for a malformed one. */
export function idempotencyOf(req: IncomingMessage, path: string): IdempotencyKey | null {
  const key = req.headers['idempotency-key']
  return key === undefined ? null : readKey(String(key), 'POST', path)
}

/** Names the run in the headers of its answer, and says whether the request was answered before. */
export function nameRun(res: ServerResponse, { id }: { id: string }, idempotency: IdempotencyKey | null): void {
  res.setHeader('X-Execution-Id', id)
  if (idempotency?.replayed) res.setHeader('Idempotent-Replayed', 'true')
}

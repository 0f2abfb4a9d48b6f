import type { IncomingMessage } from 'node:http'
import type { z } from 'zod'
import { type Actor, requireScope } from '../../auth/actor.ts'
import type { Scope } from '../../auth/scopes.ts'
import { readJson } from '../../http/body.ts'
import { type IdempotencyKey, readKey } from '../../idempotency.ts'
import { checkInput } from '../../lib/fields.ts'
import { asRequested, type Context } from '../../trpc.ts'

/**
 * Authenticates the caller of a door, with the rules of the procedures: rate limits, and a token with any of the scopes.
 * Throws 401, 403 and 429.
 */
export async function enter(context: Context, ...scopes: Scope[]): Promise<Actor> {
  const actor = await context.authenticate()
  requireScope(actor, ...scopes)
  return asRequested(context, actor)
}

/** Authenticates like {@link enter} for a request that starts a run, which EXECUTE_RATE_LIMIT counts. */
export async function enterToRun(context: Context): Promise<Actor> {
  const actor = await enter(context, 'agents:execute')
  await context.countRun?.(actor)
  return actor
}

/** Reads a request's body by a schema, once it is known who asks. Throws 400, 413 and 415. */
export async function readBody<Schema extends z.ZodType>(
  req: IncomingMessage,
  schema: Schema,
): Promise<z.output<Schema>> {
  const body = await readJson(req)
  checkInput(body)
  return schema.parse(body)
}

/** Returns the Idempotency-Key of a POST, or null. Throws 400 for a malformed one. */
export function idempotencyOf(req: IncomingMessage, path: string): IdempotencyKey | null {
  const key = req.headers['idempotency-key']
  return key === undefined ? null : readKey(String(key), 'POST', path)
}

/** Decodes a part of a path. Returns it as it is if it is malformed: nothing has such a name. */
export function decodePath(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

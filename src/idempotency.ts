import { createHmac } from 'node:crypto'
import type { Actor } from './auth/actor.ts'
import type { Bus } from './bus/index.ts'
import type { Db, Prisma, Tx } from './db/client.ts'
import type { Deps } from './deps.ts'
import { AppError, badRequest, conflict } from './errors.ts'
import { isUniqueViolation } from './lib/database-errors.ts'
import { IDEMPOTENCY_KEY, INVALID_IDEMPOTENCY_KEY } from './lib/fields.ts'
import { canonical } from './lib/json.ts'

/** Retention of stored responses (ms; contract.md section 1). */
export const LIFETIME = 24 * 60 * 60 * 1000
const LEASE = 60_000

/** The `Idempotency-Key` of a request, with its method and concrete path. */
export type IdempotencyKey = {
  readonly key: string
  readonly method: string
  readonly path: string
  /** Set once a stored response was used. */
  replayed: boolean
}

/** Checks, in the transaction of a change, that the resource matches the caller's version. Throws 412. */
export type Precondition = (tx: Tx, db: Db) => Promise<void>

/** A key as stored: digests that reveal nothing of the request. */
export type KeyClaim = {
  id: string
  organizationId: string
  inputDigest: string
  /** The record to replace: expired, or of a failed run. */
  replaces: Date | null
}

/** Thrown if another request took the key since the lookup. */
export class IdempotencyConflict extends Error {
  override name = 'IdempotencyConflict'
}

type IdempotencyRow = Prisma.IdempotencyRecordGetPayload<object>

/** Checks the format of the header (contract.md section 1). */
export function readKey(key: string, method: string, path: string): IdempotencyKey {
  if (!IDEMPOTENCY_KEY.test(key))
    throw badRequest(INVALID_IDEMPOTENCY_KEY, { detail: 'Send a new UUID for each new request.' })
  return { key, method, path, replayed: false }
}

/** Returns the keyed digest of texts. */
export const digestOf = ({ idempotencyKey }: Pick<Deps, 'idempotencyKey'>, ...parts: string[]): string =>
  createHmac('sha256', idempotencyKey).update(JSON.stringify(parts)).digest('base64url')

/** Returns the record of a key, or the claim to create one. Throws 422 if the key was used with another request. */
export async function findIdempotencyRecord(
  actor: Actor,
  deps: Deps,
  { key, method, path }: IdempotencyKey,
  input: unknown,
) {
  const { organizationId } = actor
  const id = digestOf(deps, organizationId, actor.userId, method, path, key)
  const inputDigest = digestOf(deps, canonical(input))
  const record = await deps.db.idempotencyRecord.findUnique({ where: { id } })
  const expired = record && record.createdAt.getTime() <= deps.clock.now().getTime() - LIFETIME
  if (record && !expired && record.inputDigest !== inputDigest) {
    throw new AppError(422, 'Idempotency-Key was used with another request', {
      detail: 'Send another request with another key.',
    })
  }
  const claim: KeyClaim = { id, organizationId, inputDigest, replaces: record?.createdAt ?? null }
  return { record: expired ? null : record, claim }
}

/** Returns whether another request took the key since the lookup. */
export async function isTaken(db: Db, { id, replaces }: KeyClaim): Promise<boolean> {
  const record = await db.idempotencyRecord.findUnique({ where: { id }, select: { createdAt: true } })
  return record !== null && record.createdAt.getTime() !== replaces?.getTime()
}

/** Writes the record in the transaction of the request's effect. Throws {@link IdempotencyConflict}. */
export async function takeClaim(
  tx: Tx,
  claim: KeyClaim,
  now: Date,
  content: { executionId?: string; leaseUntil?: Date } = {},
): Promise<void> {
  const { id, replaces, ...rest } = claim
  const data = { ...rest, answer: null, executionId: null, leaseUntil: null, ...content, createdAt: now }
  if (replaces) {
    const { count } = await tx.idempotencyRecord.updateMany({ where: { id, createdAt: replaces }, data })
    if (!count) throw new IdempotencyConflict()
    return
  }
  try {
    await tx.idempotencyRecord.create({ data: { id, ...data }, select: { id: true } })
  } catch (error) {
    throw isUniqueViolation(error) ? new IdempotencyConflict() : error
  }
}

type Ctx = { deps: Deps; actor: Actor; idempotency: IdempotencyKey | null }

/** Throws if the caller may not see or use a referenced object. Runs before anything else, for replays too. */
type Visible = () => unknown

/** Checks a request without references. */
export const namesNothing: Visible = () => {}

/**
 * Executes a function in one transaction, with `deps` that write in it. Notifications, and functions given to {@link
 * whenCommitted}, wait for the commit.
 */
export async function inTransaction<T>(deps: Deps, work: (deps: Deps, tx: Tx) => Promise<T>): Promise<T> {
  const later: (() => unknown)[] = []
  const bus: Bus = { ...deps.bus, publish: (channel, ids) => void later.push(() => deps.bus.publish(channel, ids)) }
  const own = {
    ...deps,
    bus,
    afterCommit: (act: () => unknown) => void later.push(act),
  }
  const answer = await deps.db.$transaction((tx) => {
    // May run again after a deadlock.
    later.length = 0
    return work({ ...own, db: asDb(tx) }, tx)
  })
  for (const act of later) await act()
  return answer
}

/** Executes a function after the commit of the transaction of `deps`, or at once outside one. */
export async function whenCommitted(deps: Deps, act: () => unknown): Promise<void> {
  if (deps.afterCommit) deps.afterCommit(act)
  else await act()
}

/**
 * Executes a request at most once per Idempotency-Key: the record is committed with the effect, and a repetition gets
 * the stored response. `effect` must use the given `deps`, so that it writes in the same transaction.
 */
export const idempotent = <T extends object>(
  ctx: Ctx,
  input: unknown,
  visible: Visible,
  effect: (deps: Deps, tx?: Tx) => Promise<T>,
): Promise<T> => {
  const { deps } = ctx
  const keeping = (claim: KeyClaim) =>
    inTransaction(deps, async (own, tx) => {
      await takeClaim(tx, claim, deps.clock.now())
      const answer = await effect(own, tx)
      await store(tx, claim, answer)
      return answer
    })
  return idempotentClaimed(ctx, input, visible, (claim) => (claim ? keeping(claim) : effect(deps)))
}

/**
 * Executes a request like {@link idempotent}, with an effect that has its own transaction. The effect takes the claim,
 * if there is one, and stores its response in this transaction.
 */
export async function idempotentClaimed<T extends object>(
  ctx: Ctx,
  input: unknown,
  visible: Visible,
  effect: (claim: KeyClaim | null) => Promise<T>,
): Promise<T> {
  const { deps, actor, idempotency } = ctx
  if (!idempotency) return effect(null)
  await visible()
  for (;;) {
    const { record, claim } = await findIdempotencyRecord(actor, deps, idempotency, input)
    if (record) return replay(record, idempotency)
    try {
      return await effect(claim)
    } catch (error) {
      if (!(error instanceof IdempotencyConflict)) throw error
    }
  }
}

/** Stores a response in the transaction that produces it, and returns it. */
export type Keep = <T extends object>(tx: Tx, answer: T) => Promise<T>

/** Options of an effect in progress. */
export type UnderWay = {
  /**
   * Whether an earlier request with this key may have had its effect: its process died, or its response could not be
   * stored.
   */
  anew: boolean
  /** For an effect that ends with a transaction. Throws {@link IdempotencyConflict} if another request took the key. */
  keep: Keep
  /** For each earlier transaction of an effect that may take longer than its lease. Throws as `keep` does. */
  renew: (tx: Tx) => Promise<void>
}

/**
 * Executes a request like {@link idempotent}, with an effect that is not one transaction: the record is a lease during
 * the effect (409 for others) and is removed if it fails.
 */
export async function idempotentLease<T extends object>(
  ctx: Ctx,
  input: unknown,
  visible: Visible,
  effect: (underWay: UnderWay) => Promise<T>,
): Promise<T> {
  const { deps, actor, idempotency } = ctx
  if (!idempotency) return effect({ anew: false, keep: async (_, answer) => answer, renew: async () => {} })
  await visible()
  const { db, clock } = deps
  const { record, claim } = await findIdempotencyRecord(actor, deps, idempotency, input)
  const now = clock.now()
  const lapsed = record?.leaseUntil && record.leaseUntil <= now
  if (record?.answer) return replay(record, idempotency)
  if (record && !lapsed) throw inProgress()
  const leaseUntil = () => new Date(clock.now().getTime() + LEASE)
  try {
    await takeClaim(db, claim, now, { leaseUntil: leaseUntil() })
  } catch (error) {
    throw error instanceof IdempotencyConflict ? inProgress() : error
  }
  let isKept = false
  const keep: Keep = async (tx, answer) => {
    const { count } = await store(tx, claim, answer, now)
    if (!count) throw new IdempotencyConflict()
    isKept = true
    return answer
  }
  const own = { id: claim.id, createdAt: now, answer: null }
  const renew = async (tx: Tx) => {
    const { count } = await tx.idempotencyRecord.updateMany({ where: own, data: { leaseUntil: leaseUntil() } })
    if (!count) throw new IdempotencyConflict()
  }
  let answer: T
  try {
    answer = await effect({ anew: record !== null, keep, renew })
  } catch (error) {
    // With a stored response the effect is complete, even if the confirmation was lost.
    await db.idempotencyRecord.deleteMany({ where: own })
    throw error instanceof IdempotencyConflict ? inProgress() : error
  }
  if (isKept) return answer
  try {
    // Unless another request replaced it meanwhile.
    await store(db, claim, answer, now)
  } catch (error) {
    // The effect is complete; a repetition starts over at once.
    await db.idempotencyRecord.updateMany({ where: own, data: { leaseUntil: now } })
    throw error
  }
  return answer
}

const inProgress = () =>
  conflict('A request with this Idempotency-Key is in progress', {
    code: 'idempotency_in_progress',
    detail: 'Repeat the request with the same key in a moment.',
  })

function replay<T>({ answer }: IdempotencyRow, idempotency: IdempotencyKey): T {
  if (answer === null) throw inProgress()
  idempotency.replayed = true
  return JSON.parse(answer)
}

/** Stores a response with null for tokens, links and secrets, which only the first response has. */
export const store = (tx: Tx, { id }: KeyClaim, answer: object, createdAt?: Date) => {
  const stored = {
    ...answer,
    ...('token' in answer && { token: null }),
    ...('url' in answer && { url: null }),
    ...('secret' in answer && { secret: null }),
  }
  const data = { answer: JSON.stringify(stored), leaseUntil: null }
  return tx.idempotencyRecord.updateMany({ where: { id, ...(createdAt && { createdAt }) }, data })
}

/** Presents a transaction as a database: nested transactions become part of it. */
export const asDb = (tx: Tx): Db =>
  new Proxy(tx, {
    get: (target, name) =>
      name === '$transaction' ? (work: (tx: Tx) => unknown) => work(tx) : Reflect.get(target, name),
  }) as Db

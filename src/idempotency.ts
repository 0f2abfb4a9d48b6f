import { createHmac } from 'node:crypto'
import type { Actor } from './auth/actor.ts'
import type { Bus } from './bus/index.ts'
import type { Db, Prisma, Tx } from './db/client.ts'
import type { Deps } from './deps.ts'
import { AppError, badRequest, conflict } from './errors.ts'
import { isUniqueViolation } from './lib/database-errors.ts'
import { IDEMPOTENCY_KEY, INVALID_IDEMPOTENCY_KEY } from './lib/fields.ts'

/** How long an answer is kept (ms; contract.md section 1). */
export const LIFETIME = 24 * 60 * 60 * 1000
const LEASE = 60_000

/** The `Idempotency-Key` of a request, and the method and concrete path it belongs to. */
export type IdempotencyKey = {
  readonly key: string
  readonly method: string
  readonly path: string
  /** Set once the answer turned out to be an earlier one. */
  replayed: boolean
}

/** Checks, in the transaction of a change, that a thing is as its caller has seen it. Throws 412. */
export type Precondition = (tx: Tx, db: Db) => Promise<void>

/** A key as it is kept: nothing of what the caller sent can be read from it. */
export type KeyClaim = {
  id: string
  organizationId: string
  inputDigest: string
  /** The record that it takes the place of: expired, or of a run that failed. */
  replaces: Date | null
}

/** Somebody else has the key since it was looked up. */
export class KeyTaken extends Error {
  override name = 'KeyTaken'
}

type IdempotencyRow = Prisma.IdempotencyRecordGetPayload<object>

/** Checks the header's form (contract.md section 1). */
export function readKey(key: string, method: string, path: string): IdempotencyKey {
  if (!IDEMPOTENCY_KEY.test(key)) throw badRequest(INVALID_IDEMPOTENCY_KEY)
  return { key, method, path, replayed: false }
}

/**
 * What is known of the key: its record, or the claim with which to make one. Throws 422 when the key was used with
 * another request.
 */
export async function lookUp(actor: Actor, deps: Deps, { key, method, path }: IdempotencyKey, input: unknown) {
  const digest = (...parts: string[]) =>
    createHmac('sha256', deps.idempotencyKey).update(JSON.stringify(parts)).digest('base64url')
  const { organizationId } = actor
  const id = digest(organizationId, actor.userId, method, path, key)
  const inputDigest = digest(canonical(input))
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

/** Whether somebody has the key since it was looked up. */
export async function isTaken(db: Db, { id, replaces }: KeyClaim): Promise<boolean> {
  const record = await db.idempotencyRecord.findUnique({ where: { id }, select: { createdAt: true } })
  return record !== null && record.createdAt.getTime() !== replaces?.getTime()
}

/** Writes the record, in the transaction of what the request does. Throws {@link KeyTaken}. */
export async function take(
  tx: Tx,
  claim: KeyClaim,
  now: Date,
  content: { executionId?: string; leaseUntil?: Date } = {},
): Promise<void> {
  const { id, replaces, ...rest } = claim
  const data = { ...rest, answer: null, executionId: null, leaseUntil: null, ...content, createdAt: now }
  if (replaces) {
    const { count } = await tx.idempotencyRecord.updateMany({ where: { id, createdAt: replaces }, data })
    if (!count) throw new KeyTaken()
    return
  }
  try {
    await tx.idempotencyRecord.create({ data: { id, ...data }, select: { id: true } })
  } catch (error) {
    throw isUniqueViolation(error) ? new KeyTaken() : error
  }
}

type Ctx = { deps: Deps; actor: Actor; idempotency: IdempotencyKey | null }

/** Throws when the caller may not see, or use, what a request names; before anything else, replay or not. */
type Visible = () => unknown

/** Of a request that names nothing. */
export const namesNothing: Visible = () => {}

/**
 * Does something in one transaction: the `deps` that it is given write in it. Notices, and whatever else it leaves to
 * {@link whenCommitted}, wait for the commit.
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
    // It may be done again, after a deadlock.
    later.length = 0
    return work({ ...own, db: asDb(tx) }, tx)
  })
  for (const act of later) await act()
  return answer
}

/** Does what must not be part of a transaction: after the commit of the one that `deps` write in, or else at once. */
export async function whenCommitted(deps: Deps, act: () => unknown): Promise<void> {
  if (deps.afterCommit) deps.afterCommit(act)
  else await act()
}

/**
 * Does a request at most once for its Idempotency-Key: the record is committed with the effect, and a repetition gets the
 * first answer. `effect` uses the `deps` it is given, so that its writes are in the record's transaction.
 */
export const once = <T extends object>(
  ctx: Ctx,
  input: unknown,
  visible: Visible,
  effect: (deps: Deps, tx?: Tx) => Promise<T>,
): Promise<T> => {
  const { deps } = ctx
  const keeping = (claim: KeyClaim) =>
    inTransaction(deps, async (own, tx) => {
      await take(tx, claim, deps.clock.now())
      const answer = await effect(own, tx)
      await store(tx, claim, answer)
      return answer
    })
  return onceClaimed(ctx, input, visible, (claim) => (claim ? keeping(claim) : effect(deps)))
}

/**
 * The same for an effect with a transaction of its own, in which it takes the claim, if there is one, and stores its
 * answer.
 */
export async function onceClaimed<T extends object>(
  ctx: Ctx,
  input: unknown,
  visible: Visible,
  effect: (claim: KeyClaim | null) => Promise<T>,
): Promise<T> {
  const { deps, actor, idempotency } = ctx
  if (!idempotency) return effect(null)
  await visible()
  for (;;) {
    const { record, claim } = await lookUp(actor, deps, idempotency, input)
    if (record) return replay(record, idempotency)
    try {
      return await effect(claim)
    } catch (error) {
      if (!(error instanceof KeyTaken)) throw error
    }
  }
}

/** Stores an answer in the transaction that gives it, and returns it. */
export type Keep = <T extends object>(tx: Tx, answer: T) => Promise<T>

/** Of an effect that is under way. */
type UnderWay = {
  /** Whether an earlier request with this key may have done it: its process died, or its answer could not be kept. */
  anew: boolean
  /** For an effect that ends with a transaction. Throws {@link KeyTaken} when it took longer than its lease. */
  keep: Keep
}

/**
 * The same for an effect that is not one transaction: the record holds a lease while it is under way (409), and goes
 * when it fails.
 */
export async function onceOutside<T extends object>(
  ctx: Ctx,
  input: unknown,
  visible: Visible,
  effect: (underWay: UnderWay) => Promise<T>,
): Promise<T> {
  const { deps, actor, idempotency } = ctx
  if (!idempotency) return effect({ anew: false, keep: async (_, answer) => answer })
  await visible()
  const { db, clock } = deps
  const { record, claim } = await lookUp(actor, deps, idempotency, input)
  const now = clock.now()
  const lapsed = record?.leaseUntil && record.leaseUntil <= now
  if (record?.answer) return replay(record, idempotency)
  if (record && !lapsed) throw inProgress()
  try {
    await take(db, claim, now, { leaseUntil: new Date(now.getTime() + LEASE) })
  } catch (error) {
    throw error instanceof KeyTaken ? inProgress() : error
  }
  let isKept = false
  const keep: Keep = async (tx, answer) => {
    const { count } = await store(tx, claim, answer, now)
    if (!count) throw new KeyTaken()
    isKept = true
    return answer
  }
  const own = { id: claim.id, createdAt: now, answer: null }
  let answer: T
  try {
    answer = await effect({ anew: record !== null, keep })
  } catch (error) {
    // With its answer it is done, though the word of it got lost.
    await db.idempotencyRecord.deleteMany({ where: own })
    throw error instanceof KeyTaken ? inProgress() : error
  }
  if (isKept) return answer
  try {
    // Unless somebody took its place meanwhile.
    await store(db, claim, answer, now)
  } catch (error) {
    // It is done: whoever repeats it begins anew, and at once.
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

/** A token is shown once: what is stored, and so the repetition, has null in its place. */
export const store = (tx: Tx, { id }: KeyClaim, answer: object, createdAt?: Date) => {
  const shown = 'token' in answer ? { ...answer, token: null } : answer
  const data = { answer: JSON.stringify(shown), leaseUntil: null }
  return tx.idempotencyRecord.updateMany({ where: { id, ...(createdAt && { createdAt }) }, data })
}

/** A transaction in the place of the database: what would be a transaction of its own is part of it. */
export const asDb = (tx: Tx): Db =>
  new Proxy(tx, {
    get: (target, name) =>
      name === '$transaction' ? (work: (tx: Tx) => unknown) => work(tx) : Reflect.get(target, name),
  }) as Db

/** JSON whose keys are in order, so that the same input has the same text. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    part && typeof part === 'object' && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  )
}

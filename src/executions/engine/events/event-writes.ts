import { Prisma, type Tx } from '../../../db/client.ts'
import { expectsOne, locksRows, padToPowerOfTwo } from '../../../db/fast-path/index.ts'
import { isUnexpectedCount } from '../../../lib/database-errors.ts'
import type { EventLogDeps } from './event-log.ts'
import { forgetFrom, lengthOf, toSegments } from './events.ts'
import type { MessageEvent, RunStream } from './run-stream.ts'

/** Maximum length of the events of one transaction (characters), except for a longer single event. */
export const MAX_WRITE = 512 * 1024

/** Unstored events of an execution, and the new limit of its reserved numbers, or null. */
export type Batch = { stream: RunStream; events: readonly MessageEvent[]; reserve: number | null }

/** Returns the length of events (characters). */
export const lengthOfAll = (events: readonly MessageEvent[]): number =>
  events.reduce((sum, { data }) => sum + lengthOf(data), 0)

/** Divides events into transactions of a limited size. Mostly there is one. */
export function inWrites(batches: readonly Batch[]): Batch[][] {
  const writes: Batch[][] = [[]]
  let length = 0
  for (const { stream, events, reserve } of batches) {
    let from = 0
    const addUpTo = (end: number) => {
      writes.at(-1)!.push({ stream, events: events.slice(from, end), reserve: from === 0 ? reserve : null })
      from = end
    }
    for (const [index, { data }] of events.entries()) {
      const more = lengthOf(data)
      if (length && length + more > MAX_WRITE) {
        if (index > from) addUpTo(index)
        writes.push([])
        length = 0
      }
      length += more
    }
    addUpTo(events.length)
  }
  return writes
}

/**
 * Maximum number of batches whose attempts are expected to be owned. More of them take as long as several small
 * transactions, which would wait for them (db/postgresql/group-commit.ts).
 */
const MAX_EXPECTED = 16

/** Writes the batches of attempts that this process still owns. Returns them. */
export async function writeOwned(deps: EventLogDeps, batches: readonly Batch[], at: Date): Promise<ReadonlySet<Batch>> {
  const write = (lock: typeof lockOwned) =>
    deps.db.$transaction(async (tx) => {
      const mine = await lock(tx, deps, batches)
      await writeEvents(tx, mine, at)
      return new Set(mine)
    })
  if (deps.rowLock === Prisma.empty || batches.length > MAX_EXPECTED) return write(lockOwned)
  return write(expectOwned).catch((error) => {
    if (isUnexpectedCount(error)) return write(lockOwned)
    throw error
  })
}

/**
 * Locks the rows and returns the batches of owned attempts, in one statement: the fence. The heartbeat extends the
 * leases.
 */
async function lockOwned(tx: Tx, { owner, rowLock }: EventLogDeps, batches: readonly Batch[]): Promise<Batch[]> {
  const owned = await tx.$queryRaw<{ id: string; attempt: number }[]>(Prisma.sql`
    SELECT "id", "attempt" FROM "Execution"
    WHERE "leaseOwner" = ${owner} AND "status" = 'running'
      AND "id" IN (${Prisma.join(padToPowerOfTwo(batches.map(({ stream }) => stream.row.id)))}) ${rowLock}`)
  const attempts = new Map(owned.map((row) => [row.id, row.attempt]))
  return batches.filter(({ stream: { row } }) => attempts.get(row.id) === row.attempt)
}

/**
 * Locks the rows on PostgreSQL, expecting that all attempts are owned, which they almost always are. It is not awaited:
 * otherwise the transaction fails (`isUnexpectedCount`).
 */
async function expectOwned(tx: Tx, { owner, rowLock }: EventLogDeps, batches: readonly Batch[]): Promise<Batch[]> {
  const attempts = batches.map(({ stream: { row } }) => Prisma.sql`(${row.id}, ${row.attempt}::int)`)
  const fence = Prisma.sql`
    SELECT "id" FROM "Execution" WHERE "leaseOwner" = ${owner} AND "status" = 'running'
      AND ("id", "attempt") IN (${Prisma.join(padToPowerOfTwo(attempts))}) ${rowLock}`
  await tx.$executeRaw(locksRows('Execution', fence, batches.length))
  return [...batches]
}

async function writeEvents(tx: Tx, batches: readonly Batch[], at: Date): Promise<void> {
  for (const { stream, reserve } of batches) {
    if (reserve === null) continue
    const call = { where: { id: stream.row.id }, data: { seqReserved: reserve } }
    await tx.execution.updateMany(expectsOne(call))
  }
  for (const { stream, events } of batches) {
    if (stream.mayBeStored) await forgetFrom(tx, stream.row.id, events[0]!.seq)
  }
  const data = batches.flatMap(({ stream, events }) => toSegments(stream.row.id, at, events))
  await tx.executionEvent.createMany({ data })
}

import { expect } from 'vitest'
import { Prisma } from '../../src/db/client.ts'
import type { Answer } from './rest.ts'
import { record, type TestServer } from './server.ts'

/**
 * Sends requests that all read a table before the first of them writes. On SQLite they then write in the given order.
 * Without this they would not overlap, because a short request ends before the next one starts.
 */
export async function together(
  { service }: Pick<TestServer, 'service'>,
  table: string,
  calls: readonly (() => Promise<Answer>)[],
): Promise<Answer[]> {
  const pattern = new RegExp(`^SELECT .* FROM (\\S+\\.)?[\`"]${table}[\`"]`)
  // The last use of a token is also written, once a minute.
  await service.deps.db.token.updateMany({ data: { lastUsedAt: service.deps.clock.now() } })
  const { answers } = await service.deps.db.$transaction(async () => {
    const answers: Promise<Answer>[] = []
    for (const call of calls) {
      using recorded = record(call)
      answers.push(recorded.result)
      const hasRead = () => recorded.statements.some((sql) => pattern.test(sql))
      await expect.poll(hasRead, { interval: 5 }).toBe(true)
    }
    return { answers }
  })
  return Promise.all(answers)
}

/**
 * On PostgreSQL: sends a request that is blocked before it writes to a table, and another one that is answered
 * meanwhile. Returns both answers.
 */
export async function overtaken(
  { service }: Pick<TestServer, 'service'>,
  table: string,
  first: () => Promise<Answer>,
  other: () => Promise<Answer>,
): Promise<[Answer, Answer]> {
  const { db } = service.deps
  const waiting = () => db.$queryRaw<object[]>`
    SELECT 1 FROM pg_locks WHERE NOT "granted" AND "relation" = ${`"${table}"`}::regclass`
  const { slow, quick } = await db.$transaction(async (tx) => {
    await tx.$executeRaw(Prisma.raw(`LOCK TABLE "${table}" IN SHARE MODE`))
    const slow = first()
    await expect.poll(waiting, { interval: 5 }).toHaveLength(1)
    return { slow, quick: await other() }
  })
  return [await slow, quick]
}

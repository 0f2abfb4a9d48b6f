import { expect } from 'vitest'
import { onPostgres } from './postgres-shared.ts'
import type { Answer } from './rest.ts'
import type { TestServer } from './server.ts'

/**
 * Sends requests whose reads of a table have all been done before the first of them writes. Left to themselves they
 * would not meet: on SQLite a short request is over before the next one is looked at.
 */
export async function together(
  { service, queries }: Pick<TestServer, 'service' | 'queries'>,
  table: string,
  calls: readonly (() => Promise<Answer>)[],
): Promise<Answer[]> {
  const pattern = new RegExp(`^SELECT .* FROM (\\S+\\.)?[\`"]${table}[\`"]`)
  // When a token was last used is written, too, once a minute.
  await service.deps.db.token.updateMany({ data: { lastUsedAt: service.deps.clock.now() } })
  const { answers } = await service.deps.db.$transaction(async (tx) => {
    // On SQLite nobody else writes during a transaction.
    if (onPostgres) await tx.$executeRawUnsafe(`LOCK TABLE "${table}" IN SHARE MODE`)
    queries.length = 0
    const answers = Promise.all(calls.map((call) => call()))
    const reads = () => queries.filter((sql) => pattern.test(sql)).length
    await expect.poll(reads, { timeout: 5_000, interval: 5 }).toBeGreaterThanOrEqual(calls.length)
    return { answers }
  })
  return answers
}

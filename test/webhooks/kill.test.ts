import { describe, expect, it } from 'vitest'
import { killedWebhooks, sharedWebhooks } from '../soak/webhooks.ts'
import { startPostgres } from '../support/postgres.ts'
import { onPostgres } from '../support/postgres-shared.ts'

// The full lengths are in `npm run test:soak`.
describe('Deliveries of servers that are killed', () => {
  it('are of every committed change, and of no other', async () => {
    await using postgres = onPostgres ? await startPostgres() : null
    const report = await killedWebhooks(3, (await postgres?.createDatabase()) ?? null)
    expect(report).toMatchObject({ missing: [], invented: [] })
    expect(report.committed).toBeGreaterThan(0)
  })
})

it.runIf(onPostgres)('two servers deliver an event once', async () => {
  await using postgres = await startPostgres()
  expect(new Set(await sharedWebhooks(60, await postgres.createDatabase()))).toEqual(new Set([1]))
})

import { expect, it } from 'vitest'
import { isUnavailable } from '../../src/lib/database-errors.ts'
import { watchTransitions } from '../engine/invariants.ts'
import { failedOver } from '../soak/servers.ts'
import { startCluster } from '../support/cluster.ts'
import { startPostgres } from '../support/postgres.ts'
import { hasPostgres } from '../support/postgres-shared.ts'

it.runIf(hasPostgres)(
  'two servers lose no run when their primary crashes and its standby is promoted',
  {
    timeout: 120_000,
  },
  async () => {
    await using postgres = await startPostgres()
    await using standby = await postgres.addStandby()
    // The standby comes first, so every connection has to pass it.
    const url = standby.beside(await postgres.createDatabase()).replace(/@([^,]+),([^/]+)/, '@$2,$1')
    const quiet = { LOG_LEVEL: 'fatal', LEASE_DURATION: '3' }
    await using cluster = await startCluster(`${url}?target_session_attrs=read-write`, [quiet, quiet])
    const transitions = await watchTransitions(cluster.db)
    async function failOver() {
      await postgres.crash()
      const refused = await cluster.db.organization.count().catch((error: unknown) => error)
      expect(isUnavailable(refused)).toBe(true)
      await standby.promote()
    }
    const { accepted, readyAfter } = await failedOver({ cluster, transitions, seconds: 2, inFlight: 8, failOver })
    expect(accepted).toBeGreaterThan(8)
    expect(readyAfter).toBeLessThan(10_000)
  },
)

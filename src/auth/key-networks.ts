import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import type { Db } from '../db/client.ts'
import type { Clock } from '../lib/clock.ts'
import { isUniqueViolation } from '../lib/database-errors.ts'
import type { Actor } from './actor.ts'
import { type AuditSource, audit } from './audit.ts'
import { networkOf } from './sign-in-limits.ts'

/** Interval at which new uses are written (ms). */
const INTERVAL = 1_000
/** Maximum number of uses that a process remembers, and of those that wait to be written. */
const MAX_SEEN = 50_000
const MAX_WAITING = 10_000
/** Accuracy of the time at which a network was last seen (ms). */
const PRECISION = 24 * 60 * 60 * 1000

export type KeyNetworks = {
  /** Records the use of a key from an address. Costs a look-up unless the use is new to this process. */
  note(actor: Actor, request: NonNullable<AuditSource['request']>): void
  stop(): Promise<void>
}

type Use = { cause: AuditSource & { tokenId: string }; network: string; at: Date }

/**
 * Stores the networks from which each key was used (IPv6: /64), and audits the use from a new one (contract-2.md
 * section 3.7). The first network of a key is no event.
 */
export function createKeyNetworks(deps: { db: Db; clock: Clock; log: Logger }): KeyNetworks {
  const { db, clock, log } = deps
  // A size rather than a number of entries, for which the cache would reserve memory at the start, in 27 ms.
  const seen = new LRUCache<string, true>({ maxSize: MAX_SEEN, sizeCalculation: () => 1 })
  let waiting: Use[] = []
  let writing = Promise.resolve()

  async function storeUse({ cause, network, at }: Use): Promise<void> {
    const { tokenId } = cause
    const where = { tokenId_network: { tokenId, network } }
    const known = await db.tokenAddress.findUnique({ where })
    if (known) {
      if (at.getTime() - known.seenAt.getTime() < PRECISION) return
      await db.tokenAddress.updateMany({ where: { tokenId, network }, data: { seenAt: at } })
      return
    }
    await db.$transaction(async (tx) => {
      const isFirst = !(await tx.tokenAddress.count({ where: { tokenId } }))
      await tx.tokenAddress.create({ data: { tokenId, network, seenAt: at }, select: { tokenId: true } })
      if (!isFirst) await audit(tx, cause, 'key.new_address', tokenId, at, { network })
    })
  }

  async function flush(): Promise<void> {
    const uses = waiting
    waiting = []
    for (const use of uses) {
      await storeUse(use).catch((error) => {
        // Another server was first.
        if (!isUniqueViolation(error)) log.warn({ err: error }, 'failed to record the network of a key')
      })
    }
  }

  const timer = setInterval(() => {
    if (waiting.length) writing = writing.then(flush)
  }, INTERVAL)

  return {
    note(actor, request) {
      const { tokenId, organizationId, userId } = actor
      if (!tokenId || request.address === undefined) return
      const use = `${tokenId} ${request.address}`
      if (seen.get(use) || waiting.length >= MAX_WAITING) return
      seen.set(use, true)
      waiting.push({
        cause: { tokenId, organizationId, userId, request },
        network: networkOf(request.address),
        at: clock.now(),
      })
    },
    async stop() {
      clearInterval(timer)
      await writing
      await flush()
    },
  }
}

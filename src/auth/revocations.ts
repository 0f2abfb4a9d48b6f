import type { Logger } from 'pino'
import type { Bus } from '../bus/index.ts'
import { type Db, Prisma } from '../db/client.ts'
import type { Clock } from '../lib/clock.ts'
import type { Actor } from './actor.ts'

/** How often the tokens of open streams are looked at (ms): they must end within 5 s (contract.md section 1). */
const INTERVAL = 4_000

export type Revocations = {
  /** A signal that aborts once the actor's token or membership has ended. Dispose of it with the stream. */
  watch(actor: Actor): Disposable & { signal: AbortSignal }
  stop(): void
}

/** Ends what goes on after its request was let in, when the caller is let in no more: one statement for all of them. */
export function createRevocations(deps: { db: Db; clock: Clock; bus: Bus; log: Logger }): Revocations {
  const { db, clock, bus, log } = deps
  const watched = new Map<string, Set<AbortController>>()

  async function look(): Promise<void> {
    const ids = [...watched.keys()]
    if (!ids.length) return
    const valid = await db.$queryRaw<{ id: string; expiresAt: unknown }[]>(Prisma.sql`
      SELECT t."id", t."expiresAt" FROM "Token" t
      JOIN "Membership" m ON m."organizationId" = t."organizationId" AND m."userId" = t."userId"
      WHERE t."revokedAt" IS NULL AND t."id" IN (${Prisma.join(ids)})`)
    const now = clock.now()
    const still = new Set(
      valid.flatMap(({ id, expiresAt }) => (expiresAt && new Date(expiresAt as string) <= now ? [] : id)),
    )
    for (const id of ids) if (!still.has(id)) for (const controller of watched.get(id) ?? []) controller.abort()
  }

  const check = () => void look().catch((error) => log.error({ err: error }, 'open streams could not be checked'))
  const timer = setInterval(check, INTERVAL)
  const unsubscribe = bus.subscribe('token', check)
  return {
    watch({ tokenId }) {
      const controller = new AbortController()
      const controllers = watched.get(tokenId) ?? new Set()
      watched.set(tokenId, controllers.add(controller))
      return {
        signal: controller.signal,
        [Symbol.dispose]() {
          controllers.delete(controller)
          if (!controllers.size && watched.get(tokenId) === controllers) watched.delete(tokenId)
        },
      }
    },
    stop() {
      clearInterval(timer)
      unsubscribe()
    },
  }
}

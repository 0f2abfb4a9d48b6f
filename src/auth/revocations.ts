import type { Logger } from 'pino'
import type { Bus } from '../bus/index.ts'
import { type Db, Prisma } from '../db/client.ts'
import type { Clock } from '../lib/clock.ts'
import { type Actor, hasExpired } from './actor.ts'

/** How often the tokens of open streams are looked at (ms): they must end within 5 s (contract.md section 1). */
const INTERVAL = 4_000

export type Revocations = {
  /** A signal that aborts once the actor's token or membership has ended, at the latest with `gone`, as all requests end. */
  watch(actor: Actor, gone: AbortSignal): AbortSignal
  stop(): void
}

type Watch = { actor: Actor; controller: AbortController }

/** Ends what goes on after its request was let in, when the caller is let in no more: one statement for all of a kind. */
export function createRevocations(deps: { db: Db; clock: Clock; bus: Bus; log: Logger }): Revocations {
  const { db, clock, bus, log } = deps
  const watches = new Set<Watch>()

  async function look(): Promise<void> {
    const looked = [...watches]
    const now = clock.now()
    const tokens = await validTokens(looked.flatMap(({ actor }) => actor.tokenId || []))
    const members = await currentMembers(looked.flatMap(({ actor }) => (actor.tokenId ? [] : actor.userId)))
    for (const { actor, controller } of looked) {
      const isMember = actor.tokenId ? tokens.has(actor.tokenId) : members.has(keyOf(actor))
      const isIn = isMember && !hasExpired(actor, now)
      if (!isIn) controller.abort()
    }
  }

  async function validTokens(ids: string[]): Promise<Set<string>> {
    if (!ids.length) return new Set()
    const rows = await db.$queryRaw<{ id: string }[]>(Prisma.sql`
      SELECT t."id" FROM "Token" t
      JOIN "Membership" m ON m."organizationId" = t."organizationId" AND m."userId" = t."userId"
      WHERE t."revokedAt" IS NULL AND t."id" IN (${Prisma.join([...new Set(ids)])})`)
    return new Set(rows.map(({ id }) => id))
  }

  async function currentMembers(userIds: string[]): Promise<Set<string>> {
    if (!userIds.length) return new Set()
    const where = { userId: { in: [...new Set(userIds)] } }
    const rows = await db.membership.findMany({ where, select: { organizationId: true, userId: true } })
    return new Set(rows.map(keyOf))
  }

  const check = () => void look().catch((error) => log.error({ err: error }, 'open streams could not be checked'))
  const timer = setInterval(check, INTERVAL)
  const unsubscribe = bus.subscribe('token', check)
  return {
    watch(actor, gone) {
      const controller = new AbortController()
      const watch = { actor, controller }
      const end = () => {
        watches.delete(watch)
        controller.abort(gone.reason)
      }
      watches.add(watch)
      gone.addEventListener('abort', end)
      if (gone.aborted) end()
      return controller.signal
    },
    stop() {
      clearInterval(timer)
      unsubscribe()
    },
  }
}

const keyOf = ({ organizationId, userId }: { organizationId: string; userId: string }) => `${organizationId} ${userId}`

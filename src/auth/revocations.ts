import type { Logger } from 'pino'
import type { Bus } from '../bus/index.ts'
import { type Db, Prisma, type Role } from '../db/client.ts'
import { unavailable } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import { createRegistry } from '../lib/registry.ts'
import { type Actor, hasExpired } from './actor.ts'

/** Interval at which the tokens of open streams are checked (ms): they must end within 5 s (contract.md section 1). */
const INTERVAL = 4_000

/** Reason of a signal whose caller has lost access. */
export const ACCESS_ENDED = new Error('The access of the caller has ended')

export type Revocations = {
  /**
   * Aborts the controller with {@link ACCESS_ENDED} once the actor's token or membership has ended, or with a 503 once
   * the role has changed. The controller must be aborted when the request ends. Returns its signal.
   */
  watch(actor: Actor, controller: AbortController): AbortSignal
  stop(): void
}

type Watch = { actor: Actor; controller: AbortController }

/**
 * Ends open streams and waiting requests whose callers lose access or change roles, with one statement per kind of
 * caller.
 */
export function createRevocations(deps: { db: Db; clock: Clock; bus: Bus; log: Logger }): Revocations {
  const { db, clock, bus, log } = deps
  const watches = createRegistry<number, Watch>()
  let begun = 0

  async function look(): Promise<void> {
    const looked = watches.values()
    const now = clock.now()
    const byToken = await rolesOfTokens(looked.flatMap(({ actor }) => actor.tokenId || []))
    const byUser = await rolesOfUsers(looked.flatMap(({ actor }) => (actor.tokenId ? [] : actor.userId)))
    const sessions = await openSessions(
      looked.flatMap(({ actor }) => actor.sessionId ?? []),
      now,
    )
    const changed: string[] = []
    for (const { actor, controller } of looked) {
      const role = actor.tokenId ? byToken.get(actor.tokenId) : byUser.get(keyOf(actor))
      const hasEnded = hasExpired(actor, now) || (actor.sessionId !== undefined && !sessions.has(actor.sessionId))
      if (role === actor.role && !hasEnded) continue
      changed.push(actor.sessionId || actor.tokenId || actor.userId)
      // A caller whose role has changed must reconnect.
      controller.abort(role === undefined || hasEnded ? ACCESS_ENDED : unavailable())
    }
    // Otherwise caches of callers would admit these again for a moment.
    if (changed.length) bus.publish('token', changed)
  }

  /** Returns the roles of the owners of valid tokens. */
  async function rolesOfTokens(ids: string[]): Promise<Map<string, Role>> {
    if (!ids.length) return new Map()
    const rows = await db.$queryRaw<{ id: string; role: Role }[]>(Prisma.sql`
      SELECT t."id", m."role" FROM "Token" t
      JOIN "Membership" m ON m."organizationId" = t."organizationId" AND m."userId" = t."userId"
      WHERE t."revokedAt" IS NULL AND t."id" IN (${Prisma.join([...new Set(ids)])})`)
    return new Map(rows.map(({ id, role }) => [id, role]))
  }

  /** Excludes browser sessions that have ended. */
  async function openSessions(ids: string[], now: Date): Promise<Set<string>> {
    if (!ids.length) return new Set()
    const where = { id: { in: [...new Set(ids)] }, expiresAt: { gt: now } }
    const rows = await db.browserSession.findMany({ where, select: { id: true } })
    return new Set(rows.map(({ id }) => id))
  }

  async function rolesOfUsers(userIds: string[]): Promise<Map<string, Role>> {
    if (!userIds.length) return new Map()
    const where = { userId: { in: [...new Set(userIds)] } }
    const rows = await db.membership.findMany({ where, select: { organizationId: true, userId: true, role: true } })
    return new Map(rows.map((row) => [keyOf(row), row.role]))
  }

  const check = () => void look().catch((error) => log.error({ err: error }, 'failed to check open streams'))
  const timer = setInterval(check, INTERVAL)
  const unsubscribe = bus.subscribe('token', check)
  return {
    watch(actor, controller) {
      const { signal } = controller
      if (signal.aborted) return signal
      const key = begun++
      watches.set(key, { actor, controller })
      signal.addEventListener('abort', () => watches.delete(key))
      return signal
    },
    stop() {
      clearInterval(timer)
      unsubscribe()
    },
  }
}

const keyOf = ({ organizationId, userId }: { organizationId: string; userId: string }) => `${organizationId} ${userId}`

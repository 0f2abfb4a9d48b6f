import { setImmediate } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Db } from '../../../db/client.ts'
import { isUnavailable } from '../../../lib/database-errors.ts'
import { findCrowded, findReady, READY_AT_ONCE } from './concurrency.ts'

export type RoomDeps = {
  db: Db
  log: Logger
  /** How many runs may be on in this process, and of one organization in all. */
  limits: { process: number; organization: number | undefined }
  /** How many places are taken in this process. */
  taken: () => number
  /** Begins a pending run. False when there is no room in its organization, or any more in this process. */
  begin: (id: string) => Promise<boolean>
}

/**
 * Room for runs: in this process, and in their organizations. While some wait for it, nobody who came later gets it
 * before them; one organization's waiting runs do not keep another's from theirs.
 */
export function createRoom({ db, log, limits, taken, begin }: RoomDeps) {
  /** Some wait for room in this process. */
  let crowded = false
  /** Of these organizations, some wait for others to end. */
  let crowdedOrganizations: ReadonlySet<string> = new Set()
  let filling: Promise<void> | null = null
  let again = false

  const isFull = () => taken() >= limits.process

  async function fillOnce(): Promise<void> {
    const ready = await findReady(db, limits.organization)
    const full = new Set<string>()
    let begun = 0
    let keptOut = false
    for (const { id, organizationId, delegated } of ready) {
      if (isFull() && !delegated) {
        keptOut = true
        continue
      }
      if (full.has(organizationId) && !delegated) continue
      const hasBegun = await tryToBegin(id)
      if (hasBegun) begun++
      else if (hasBegun === false) full.add(organizationId)
    }
    crowded = keptOut || ready.length === READY_AT_ONCE
    if (keptOut) return
    crowdedOrganizations = new Set(limits.organization === undefined ? [] : await findCrowded(db))
    again ||= crowded && begun > 0
  }

  /** Null where it fails, and not for the database's sake: that is no reason not to begin the others. */
  const tryToBegin = (id: string): Promise<boolean | null> =>
    begin(id).catch((error) => {
      if (isUnavailable(error)) throw error
      log.error({ err: error, executionId: id }, 'a pending run could not be begun; the sweep will try again')
      return null
    })

  async function fillUp(): Promise<void> {
    do {
      again = false
      await fillOnce()
      await setImmediate()
    } while (again)
  }

  return {
    /** Whether as many runs as may be are on in this process. */
    isFull,
    isFor: (organizationId: string): boolean => !crowded && !crowdedOrganizations.has(organizationId) && !isFull(),
    /** Whether anybody is known to wait for room. */
    isWanted: (): boolean => crowded || crowdedOrganizations.size > 0,
    /** Begins what waits for room, the oldest first; what is asked for meanwhile is done, too. */
    fill(): Promise<void> {
      again = true
      filling ??= fillUp().finally(() => {
        filling = null
      })
      return filling
    },
    /** A run of this organization waits, and nobody may overtake it. */
    wait(organizationId: string): void {
      crowded ||= isFull()
      crowdedOrganizations = new Set([...crowdedOrganizations, organizationId])
    },
  }
}

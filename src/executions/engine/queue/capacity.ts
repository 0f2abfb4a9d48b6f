import { setImmediate } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Db } from '../../../db/client.ts'
import { isUnavailable } from '../../../lib/database-errors.ts'
import { findReady, findSaturatedOrganizations, READY_AT_ONCE } from './concurrency.ts'

export type CapacityDeps = {
  db: Db
  log: Logger
  /** Maximum number of concurrent runs of this process and of one organization. */
  limits: { process: number; organization: number | undefined }
  /** Number of slots in use in this process. */
  taken: () => number
  /** Starts a pending run. Returns false if its organization or this process has no capacity. */
  begin: (id: string) => Promise<boolean>
}

/**
 * Tracks capacity for runs, per process and per organization. Waiting runs take precedence over later ones, and one
 * organization's waiting runs do not block another's.
 */
export function createCapacity({ db, log, limits, taken, begin }: CapacityDeps) {
  /** Whether runs wait for a slot in this process. */
  let isSaturated = false
  /** Organizations whose runs wait for others of the same organization to end. */
  let saturatedOrganizations: ReadonlySet<string> = new Set()
  let filling: Promise<void> | null = null
  let again = false

  const isFull = () => taken() >= limits.process

  async function fillOnce(): Promise<void> {
    const ready = await findReady(db, limits.organization)
    const full = new Set<string>()
    let begun = 0
    let postponed = false
    for (const { id, organizationId, delegated } of ready) {
      if (isFull() && !delegated) {
        postponed = true
        continue
      }
      // Delegates come first and need no capacity, so they are never here.
      if (full.has(organizationId)) continue
      const hasBegun = await tryToBegin(id)
      if (hasBegun) begun++
      else if (hasBegun === false) full.add(organizationId)
    }
    isSaturated = postponed || ready.length === READY_AT_ONCE
    if (postponed) return
    saturatedOrganizations = new Set(limits.organization === undefined ? [] : await findSaturatedOrganizations(db))
    again ||= isSaturated && begun > 0
  }

  /** Returns null on a failure other than an unavailable database, so that one faulty run does not block the others. */
  const tryToBegin = (id: string): Promise<boolean | null> =>
    begin(id).catch((error) => {
      if (isUnavailable(error)) throw error
      log.error({ err: error, executionId: id }, 'failed to start a pending run; the sweep will retry')
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
    /** Returns whether this process executes as many runs as it may. */
    isFull,
    hasCapacity: (organizationId: string): boolean =>
      !isSaturated && !saturatedOrganizations.has(organizationId) && !isFull(),
    /** Returns whether any run is known to wait for capacity. */
    isWanted: (): boolean => isSaturated || saturatedOrganizations.size > 0,
    /** Starts runs that wait for capacity, oldest first. Repeats if it is called again meanwhile. */
    fill(): Promise<void> {
      again = true
      filling ??= fillUp().finally(() => {
        filling = null
      })
      return filling
    },
    /** Records that a run of this organization waits and must not be overtaken. */
    wait(organizationId: string): void {
      isSaturated ||= isFull()
      saturatedOrganizations = new Set([...saturatedOrganizations, organizationId])
    },
  }
}

import type { Tx } from '../../../db/client.ts'
import type { Settings } from '../../../settings.ts'
import type { ExecutionRow } from '../events/events.ts'

/** Changes that a resource makes in the final transaction of a run. An error rolls the end of the run back. */
export type RunHooks = {
  /** Takes the locks for `onRunEnded` that precede the organization's lock. Lock order: see claims.ts. */
  lockForRunEnded?: (tx: Tx, deps: { settings: Settings }, ended: ExecutionRow) => Promise<void>
  /** Makes the changes, with the organization's row locked. */
  onRunEnded: (tx: Tx, ended: ExecutionRow, now: Date) => Promise<void>
  /** Set if many runs write one row, which stays locked from then on: such changes come directly before COMMIT. */
  isLast?: true
}

const registered: RunHooks[] = []

/** Registers what a resource does when a run ends. Called once as the service of the resource loads. */
export function registerRunHooks(hooks: RunHooks): void {
  const end = hooks.isLast ? -1 : registered.findIndex(({ isLast }) => isLast)
  registered.splice(end === -1 ? registered.length : end, 0, hooks)
}

/** Returns the hooks of all resources in the order of their execution. */
export const registeredRunHooks = (): readonly RunHooks[] => registered

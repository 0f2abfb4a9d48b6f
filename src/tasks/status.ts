import type { z } from 'zod'
import { badRequest } from '../errors.ts'
import type { TaskStatus } from './schema.ts'

export type Status = z.output<typeof TaskStatus>

/** The state table of service.md, "Task status". */
const TRANSITIONS: Readonly<Record<Status, readonly Status[]>> = {
  pending: ['in_progress', 'cancelled'],
  in_progress: ['completed', 'cancelled', 'pending'],
  completed: [],
  cancelled: [],
}

/** Returns the changes for a new status. Throws 400 for an invalid transition. */
export function moveTo(from: Status, to: Status, now: Date) {
  // Completing a pending task by hand combines both transitions (contract-2.md section 1.15).
  const isBoth = from === 'pending' && to === 'completed'
  if (!isBoth && !TRANSITIONS[from].includes(to)) {
    const next = TRANSITIONS[from].join(' or ')
    throw badRequest(`Invalid status transition: ${from} to ${to}`, {
      detail: next ? `From ${from} a task can become ${next}.` : `A task that is ${from} stays so: create another one.`,
    })
  }
  // The end of a run changes the task whose `executionId` it is, so a task started by hand has none.
  const begun = (to === 'in_progress' || isBoth) && { executionId: null }
  return { status: to, completedAt: to === 'completed' ? now : null, ...begun }
}

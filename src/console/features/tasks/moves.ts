import type { Output } from '../../api.ts'

export type Task = Output<'tasks.list'>['tasks'][number]
export type Status = Task['status']

export const STATUSES = ['pending', 'in_progress', 'completed', 'cancelled'] as const satisfies readonly Status[]

/** The allowed moves between statuses (service.md, "Task status"; contract-2.md section 1.15). */
const NEXT: Readonly<Record<Status, readonly Status[]>> = {
  pending: ['in_progress', 'completed', 'cancelled'],
  in_progress: ['pending', 'completed', 'cancelled'],
  completed: [],
  cancelled: [],
}

export const movesOf = (status: Status): readonly Status[] => NEXT[status]

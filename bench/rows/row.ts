import type { Lab } from '../lab.ts'

/** One measurement of the service, and of what it is compared with, a moment apart. */
export type Sample = {
  value: number
  reference: number
  /** Processor time of the server for each request (µs), ours and the reference's; null where it cannot be told. */
  cpu?: readonly [ours: number | null, theirs: number | null]
}

/** How much a measurement may take. */
export type Effort = { seconds: number; repeats: number }

export type Row = {
  name: string
  what: string
  unit: string
  /** What it is compared with. */
  reference: string
  goal?: { of: 'value' | 'ratio'; atLeast: number } | { of: 'value' | 'ratio'; atMost: number }
  /** Takes so long that it is measured in the first round only, and not warmed up. */
  once?: boolean
  /** Starts what is needed; what it returns measures once. */
  prepare: (lab: Lab) => Promise<(effort: Effort) => Promise<Sample>>
}

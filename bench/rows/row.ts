import type { Lab } from '../lab.ts'

/** One measurement of the service, and of its reference right after it. */
export type Sample = {
  value: number
  reference: number
  /** Processor time of the server per request (µs), the service's and the reference's; null if unknown. */
  cpu?: readonly [ours: number | null, theirs: number | null]
}

/** The target of a measurement. */
export type Effort = { seconds: number; repeats: number }

export type Row = {
  name: string
  what: string
  unit: string
  /** The reference. */
  reference: string
  goal?: { of: 'value' | 'ratio'; atLeast: number } | { of: 'value' | 'ratio'; atMost: number }
  /** Runs only in the first round, without a warm-up, because it takes long. */
  once?: boolean
  /** Starts the servers. Returns a function that measures once. */
  prepare: (lab: Lab) => Promise<(effort: Effort) => Promise<Sample>>
}

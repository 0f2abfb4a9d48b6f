import type { ServerResponse } from 'node:http'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import type { AgentRow } from '../executions/engine/queue/claims.ts'
import type { RunInput } from '../executions/engine/run/run.ts'

/** Hooks for telemetry. They neither fail nor block. */
export type Telemetry = {
  /** A request has arrived. `route` is known later. */
  request?: (res: ServerResponse, method: string, route: () => string) => void
  /** An attempt at a run starts. Returns its input with tracing. */
  begin: (row: ExecutionRow, agent: AgentRow, prepared: { input: RunInput }) => RunInput
  /** A run has ended, in any process. */
  ended: (row: ExecutionRow) => void
  /** An attempt is over in this process, with or without an outcome. */
  left: (executionId: string) => void
  /** A run was taken over from a dead process. */
  takenOver: () => void
}

/** Telemetry that records nothing. */
export const silent: Telemetry = {
  begin: (_row, _agent, { input }) => input,
  ended: () => {},
  left: () => {},
  takenOver: () => {},
}

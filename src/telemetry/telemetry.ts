import type { ServerResponse } from 'node:http'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import type { AgentRow } from '../executions/engine/queue/claims.ts'
import type { RunInput } from '../executions/engine/run/run.ts'

/** What the service tells of itself while it works. Nothing here fails, or waits for anybody. */
export type Telemetry = {
  /** A request has come, of the route that it turns out to have. */
  request?: (res: ServerResponse, method: string, route: () => string) => void
  /** An attempt at a run begins. What it is to work with: the same, watched. */
  begin: (row: ExecutionRow, agent: AgentRow, equipment: { input: RunInput }) => RunInput
  /** A run has its outcome, wherever it was on. */
  ended: (row: ExecutionRow) => void
  /** An attempt is over in this process, with an outcome or without. */
  left: (executionId: string) => void
  /** A run was taken over, since its process gave no sign of life. */
  takenOver: () => void
}

/** For those who want to know nothing. */
export const silent: Telemetry = {
  begin: (_row, _agent, { input }) => input,
  ended: () => {},
  left: () => {},
  takenOver: () => {},
}

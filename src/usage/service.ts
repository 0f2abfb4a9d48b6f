import { Prisma, type Tx } from '../db/client.ts'
import type { ExecutionRow } from '../executions/engine/events.ts'

/** In the terminal transaction of a run: adds it to its day's row, so that a report reads as many rows as days. */
export async function count(tx: Tx, run: ExecutionRow, now: Date): Promise<void> {
  const failed = run.status === 'failed' ? 1 : 0
  await tx.$executeRaw(Prisma.sql`
    INSERT INTO "UsageDay"
      ("organizationId", "date", "agentId", "model", "executions", "failed", "inputTokens", "outputTokens")
    VALUES (${run.organizationId}, ${now.toISOString().slice(0, 10)}, ${run.agentId}, ${run.model ?? ''},
      1, ${failed}, ${run.inputTokens}, ${run.outputTokens})
    ON CONFLICT ("organizationId", "date", "agentId", "model") DO UPDATE SET
      "executions" = "UsageDay"."executions" + 1,
      "failed" = "UsageDay"."failed" + excluded."failed",
      "inputTokens" = "UsageDay"."inputTokens" + excluded."inputTokens",
      "outputTokens" = "UsageDay"."outputTokens" + excluded."outputTokens"`)
}

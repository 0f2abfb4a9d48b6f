-- DropIndex
DROP INDEX "AuditEvent_organizationId_at_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_missionId_idx";

-- DropIndex
DROP INDEX "Message_executionId_role_key";

-- DropIndex
DROP INDEX "ExecutionEvent_at_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_missionId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_taskId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_parentExecutionId_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_rootExecutionId_idx";

-- DropIndex
DROP INDEX "Execution_status_leaseUntil_idx";

-- AlterTable
ALTER TABLE "AuditEvent" DROP CONSTRAINT "AuditEvent_pkey",
ADD CONSTRAINT "AuditEvent_pkey" PRIMARY KEY ("organizationId", "at", "id");

-- Most runs are of no mission, task or parent, and have ended; most chats are of no mission. Those have no part in these
-- indexes: each that a run writes a row of is a page, or two on PostgreSQL, where a row that changes is a new one in each.
CREATE INDEX "Chat_organizationId_missionId_idx" ON "Chat"("organizationId", "missionId")
  WHERE "missionId" IS NOT NULL;
CREATE INDEX "Execution_organizationId_missionId_createdAt_id_idx"
  ON "Execution"("organizationId", "missionId", "createdAt", "id") WHERE "missionId" IS NOT NULL;
CREATE INDEX "Execution_organizationId_taskId_createdAt_id_idx"
  ON "Execution"("organizationId", "taskId", "createdAt", "id") WHERE "taskId" IS NOT NULL;
CREATE INDEX "Execution_organizationId_rootExecutionId_idx" ON "Execution"("organizationId", "rootExecutionId")
  WHERE "parentExecutionId" IS NOT NULL;
CREATE INDEX "Execution_status_leaseUntil_idx" ON "Execution"("status", "leaseUntil") WHERE "terminalSeq" IS NULL;

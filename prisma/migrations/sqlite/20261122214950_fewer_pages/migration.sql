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

-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_AuditEvent" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "actor" TEXT NOT NULL,
    "action" TEXT NOT NULL,
    "target" TEXT NOT NULL,
    "at" DATETIME NOT NULL,

    PRIMARY KEY ("organizationId", "at", "id"),
    CONSTRAINT "AuditEvent_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);
INSERT INTO "new_AuditEvent" ("action", "actor", "at", "id", "organizationId", "target") SELECT "action", "actor", "at", "id", "organizationId", "target" FROM "AuditEvent";
DROP TABLE "AuditEvent";
ALTER TABLE "new_AuditEvent" RENAME TO "AuditEvent";
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

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

-- DropIndex
DROP INDEX "Execution_organizationId_taskId_idx";

-- CreateIndex
CREATE INDEX "Execution_organizationId_taskId_createdAt_id_idx" ON "Execution"("organizationId", "taskId", "createdAt", "id");

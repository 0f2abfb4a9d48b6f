-- What hangs on a row over GraphQL, each list in an index of its own. Children of runs had none: all that an organization's
-- runs had started were looked through for those of one.

-- DropIndex
DROP INDEX "Mission_organizationId_spaceId_idx";

-- CreateIndex
CREATE INDEX "Membership_organizationId_createdAt_userId_idx" ON "Membership"("organizationId", "createdAt", "userId");

-- CreateIndex
CREATE INDEX "Mission_organizationId_agentId_archivedAt_createdAt_id_idx" ON "Mission"("organizationId", "agentId", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Mission_organizationId_spaceId_archivedAt_createdAt_id_idx" ON "Mission"("organizationId", "spaceId", "archivedAt", "createdAt", "id");

CREATE INDEX "Execution_parentExecutionId_createdAt_id_idx" ON "Execution"("parentExecutionId", "createdAt", "id")
  WHERE "parentExecutionId" IS NOT NULL;

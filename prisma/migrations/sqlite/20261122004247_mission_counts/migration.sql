-- DropIndex
DROP INDEX "Mission_organizationId_visibility_userId_id_idx";

-- DropIndex
DROP INDEX "Mission_agentOrganizationId_agentId_idx";

-- CreateIndex
CREATE INDEX "Mission_organizationId_visibility_userId_archivedAt_status_id_idx" ON "Mission"("organizationId", "visibility", "userId", "archivedAt", "status", "id");

-- CreateIndex
CREATE INDEX "Mission_agentId_organizationId_visibility_userId_archivedAt_status_idx" ON "Mission"("agentId", "organizationId", "visibility", "userId", "archivedAt", "status");

-- DropIndex
DROP INDEX "Space_organizationId_visibility_ownerId_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_agentId_archivedAt_createdAt_id_idx";

-- CreateIndex
CREATE INDEX "Space_organizationId_visibility_ownerId_id_idx" ON "Space"("organizationId", "visibility", "ownerId", "id");

-- CreateIndex
CREATE INDEX "Chat_organizationId_agentId_archivedAt_createdAt_id_spaceId_idx" ON "Chat"("organizationId", "agentId", "archivedAt", "createdAt" DESC, "id" DESC, "spaceId");

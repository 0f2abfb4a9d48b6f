-- DropIndex
DROP INDEX "Space_organizationId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_spaceId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_agentId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_status_createdAt_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Skill_organizationId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Mission_organizationId_createdAt_id_idx";

-- CreateIndex
CREATE INDEX "Space_organizationId_archivedAt_createdAt_id_visibility_ownerId_idx" ON "Space"("organizationId", "archivedAt", "createdAt" DESC, "id" DESC, "visibility", "ownerId");

-- CreateIndex
CREATE INDEX "Space_organizationId_visibility_ownerId_idx" ON "Space"("organizationId", "visibility", "ownerId");

-- CreateIndex
CREATE INDEX "Agent_organizationId_visibility_userId_id_idx" ON "Agent"("organizationId", "visibility", "userId", "id");

-- CreateIndex
CREATE INDEX "Chat_organizationId_spaceId_archivedAt_createdAt_id_idx" ON "Chat"("organizationId", "spaceId", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Chat_organizationId_agentId_archivedAt_createdAt_id_idx" ON "Chat"("organizationId", "agentId", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Chat_organizationId_status_archivedAt_createdAt_id_idx" ON "Chat"("organizationId", "status", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Chat_organizationId_archivedAt_createdAt_id_idx" ON "Chat"("organizationId", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Skill_organizationId_createdAt_id_visibility_ownerId_idx" ON "Skill"("organizationId", "createdAt" DESC, "id" DESC, "visibility", "ownerId");

-- CreateIndex
CREATE INDEX "Mission_organizationId_archivedAt_createdAt_id_idx" ON "Mission"("organizationId", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Mission_organizationId_archivedAt_status_createdAt_id_idx" ON "Mission"("organizationId", "archivedAt", "status", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Mission_organizationId_visibility_userId_id_idx" ON "Mission"("organizationId", "visibility", "userId", "id");

-- CreateIndex
CREATE INDEX "Mission_organizationId_spaceId_idx" ON "Mission"("organizationId", "spaceId");

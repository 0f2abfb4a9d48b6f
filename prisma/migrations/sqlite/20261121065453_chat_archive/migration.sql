-- AlterTable
ALTER TABLE "Chat" ADD COLUMN "archivedAt" DATETIME;

-- CreateIndex
CREATE INDEX "Chat_organizationId_agentId_createdAt_id_idx" ON "Chat"("organizationId", "agentId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Chat_organizationId_status_createdAt_id_idx" ON "Chat"("organizationId", "status", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "SpaceFile_spaceId_path_size_updatedAt_idx" ON "SpaceFile"("spaceId", "path", "size", "updatedAt");

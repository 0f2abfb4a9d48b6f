-- DropIndex
DROP INDEX "Skill_organizationId_createdAt_id_visibility_ownerId_idx";

-- CreateIndex
CREATE INDEX "Skill_organizationId_visibility_createdAt_id_idx" ON "Skill"("organizationId", "visibility", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Skill_organizationId_visibility_ownerId_createdAt_id_idx" ON "Skill"("organizationId", "visibility", "ownerId", "createdAt" DESC, "id" DESC);

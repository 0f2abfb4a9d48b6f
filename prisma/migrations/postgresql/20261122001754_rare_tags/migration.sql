-- DropIndex
DROP INDEX "AgentTag_organizationId_tag_idx";

-- CreateIndex
CREATE INDEX "AgentTag_tag_organizationId_agentId_idx" ON "AgentTag"("tag", "organizationId", "agentId");

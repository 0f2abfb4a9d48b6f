-- DropIndex
DROP INDEX "Token_organizationId_userId_createdAt_id_idx";

-- DropIndex
DROP INDEX "AuditEvent_organizationId_at_id_idx";

-- DropIndex
DROP INDEX "Space_organizationId_archivedAt_createdAt_id_visibility_ownerId_idx";

-- DropIndex
DROP INDEX "Space_organizationId_visibility_ownerId_idx";

-- DropIndex
DROP INDEX "Agent_organizationId_archivedAt_visibility_createdAt_id_idx";

-- DropIndex
DROP INDEX "Agent_organizationId_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "Agent_organizationId_userId_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "Agent_visibility_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "AgentTag_organizationId_tag_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_spaceId_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_agentId_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_status_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "Chat_organizationId_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "Session_organizationId_chatId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_status_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_agentId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_chatId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_spaceId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Execution_organizationId_missionId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Approval_organizationId_status_createdAt_id_idx";

-- DropIndex
DROP INDEX "Approval_organizationId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Skill_organizationId_createdAt_id_visibility_ownerId_idx";

-- DropIndex
DROP INDEX "Skill_visibility_createdAt_id_idx";

-- DropIndex
DROP INDEX "McpServer_organizationId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Task_organizationId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Task_organizationId_status_createdAt_id_idx";

-- DropIndex
DROP INDEX "Task_organizationId_priority_createdAt_id_idx";

-- DropIndex
DROP INDEX "Task_organizationId_assignedTo_createdAt_id_idx";

-- DropIndex
DROP INDEX "Task_organizationId_spaceId_createdAt_id_idx";

-- DropIndex
DROP INDEX "Mission_organizationId_archivedAt_createdAt_id_idx";

-- DropIndex
DROP INDEX "Mission_organizationId_archivedAt_status_createdAt_id_idx";

-- DropIndex
DROP INDEX "Mission_organizationId_visibility_userId_id_idx";

-- DropIndex
DROP INDEX "Mission_agentOrganizationId_agentId_idx";

-- DropIndex
DROP INDEX "Media_organizationId_createdAt_id_idx";

-- CreateIndex
CREATE INDEX "Token_organizationId_userId_createdAt_id_idx" ON "Token"("organizationId", "userId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "AuditEvent_organizationId_at_id_idx" ON "AuditEvent"("organizationId", "at", "id");

-- CreateIndex
CREATE INDEX "Space_organizationId_archivedAt_createdAt_id_visibility_ownerId_idx" ON "Space"("organizationId", "archivedAt", "createdAt", "id", "visibility", "ownerId");

-- CreateIndex
CREATE INDEX "Space_organizationId_visibility_ownerId_id_idx" ON "Space"("organizationId", "visibility", "ownerId", "id");

-- CreateIndex
CREATE INDEX "Agent_organizationId_archivedAt_visibility_createdAt_id_idx" ON "Agent"("organizationId", "archivedAt", "visibility", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Agent_organizationId_archivedAt_createdAt_id_idx" ON "Agent"("organizationId", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Agent_organizationId_userId_archivedAt_createdAt_id_idx" ON "Agent"("organizationId", "userId", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Agent_visibility_archivedAt_createdAt_id_idx" ON "Agent"("visibility", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "AgentTag_tag_organizationId_agentId_idx" ON "AgentTag"("tag", "organizationId", "agentId");

-- CreateIndex
CREATE INDEX "Chat_organizationId_spaceId_archivedAt_createdAt_id_idx" ON "Chat"("organizationId", "spaceId", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Chat_organizationId_agentId_archivedAt_createdAt_id_spaceId_idx" ON "Chat"("organizationId", "agentId", "archivedAt", "createdAt", "id", "spaceId");

-- CreateIndex
CREATE INDEX "Chat_organizationId_status_archivedAt_createdAt_id_idx" ON "Chat"("organizationId", "status", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Chat_organizationId_archivedAt_createdAt_id_idx" ON "Chat"("organizationId", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Session_organizationId_chatId_createdAt_id_idx" ON "Session"("organizationId", "chatId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Execution_organizationId_createdAt_id_idx" ON "Execution"("organizationId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Execution_organizationId_status_createdAt_id_idx" ON "Execution"("organizationId", "status", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Execution_organizationId_agentId_createdAt_id_idx" ON "Execution"("organizationId", "agentId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Execution_organizationId_chatId_createdAt_id_idx" ON "Execution"("organizationId", "chatId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Execution_organizationId_spaceId_createdAt_id_idx" ON "Execution"("organizationId", "spaceId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Execution_organizationId_missionId_createdAt_id_idx" ON "Execution"("organizationId", "missionId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Approval_organizationId_status_createdAt_id_idx" ON "Approval"("organizationId", "status", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Approval_organizationId_createdAt_id_idx" ON "Approval"("organizationId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Skill_organizationId_visibility_createdAt_id_idx" ON "Skill"("organizationId", "visibility", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Skill_organizationId_visibility_ownerId_createdAt_id_idx" ON "Skill"("organizationId", "visibility", "ownerId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Skill_visibility_createdAt_id_idx" ON "Skill"("visibility", "createdAt", "id");

-- CreateIndex
CREATE INDEX "McpServer_organizationId_createdAt_id_idx" ON "McpServer"("organizationId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Task_organizationId_createdAt_id_idx" ON "Task"("organizationId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Task_organizationId_status_createdAt_id_idx" ON "Task"("organizationId", "status", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Task_organizationId_priority_createdAt_id_idx" ON "Task"("organizationId", "priority", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Task_organizationId_assignedTo_createdAt_id_idx" ON "Task"("organizationId", "assignedTo", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Task_organizationId_spaceId_createdAt_id_idx" ON "Task"("organizationId", "spaceId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Mission_organizationId_archivedAt_createdAt_id_idx" ON "Mission"("organizationId", "archivedAt", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Mission_organizationId_archivedAt_status_createdAt_id_idx" ON "Mission"("organizationId", "archivedAt", "status", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Mission_organizationId_visibility_userId_archivedAt_status_id_idx" ON "Mission"("organizationId", "visibility", "userId", "archivedAt", "status", "id");

-- CreateIndex
CREATE INDEX "Mission_agentId_organizationId_visibility_userId_archivedAt_status_idx" ON "Mission"("agentId", "organizationId", "visibility", "userId", "archivedAt", "status");

-- CreateIndex
CREATE INDEX "Media_organizationId_createdAt_id_idx" ON "Media"("organizationId", "createdAt", "id");

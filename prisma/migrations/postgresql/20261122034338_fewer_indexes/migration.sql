-- DropIndex
DROP INDEX "Chat_agentOrganizationId_agentId_idx";

-- DropIndex
DROP INDEX "Session_agentOrganizationId_agentId_idx";

-- DropIndex
DROP INDEX "Execution_agentOrganizationId_agentId_idx";

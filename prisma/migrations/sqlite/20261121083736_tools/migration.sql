-- CreateTable
CREATE TABLE "ExecutionStep" (
    "executionId" TEXT NOT NULL,
    "step" INTEGER NOT NULL,
    "reply" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,

    PRIMARY KEY ("executionId", "step"),
    CONSTRAINT "ExecutionStep_executionId_fkey" FOREIGN KEY ("executionId") REFERENCES "Execution" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "ToolCall" (
    "executionId" TEXT NOT NULL,
    "step" INTEGER NOT NULL,
    "position" INTEGER NOT NULL,
    "toolUseId" TEXT NOT NULL,
    "startedAt" DATETIME,
    "completedAt" DATETIME,
    "content" TEXT,
    "isError" BOOLEAN NOT NULL DEFAULT false,
    "childExecutionId" TEXT,

    PRIMARY KEY ("executionId", "step", "position"),
    CONSTRAINT "ToolCall_executionId_fkey" FOREIGN KEY ("executionId") REFERENCES "Execution" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "ToolCall_executionId_step_fkey" FOREIGN KEY ("executionId", "step") REFERENCES "ExecutionStep" ("executionId", "step") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Approval" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "executionId" TEXT NOT NULL,
    "chatId" TEXT NOT NULL,
    "step" INTEGER NOT NULL,
    "position" INTEGER NOT NULL,
    "toolUseId" TEXT NOT NULL,
    "tool" TEXT NOT NULL,
    "input" TEXT NOT NULL,
    "status" TEXT NOT NULL,
    "reason" TEXT,
    "decidedBy" TEXT,
    "createdAt" DATETIME NOT NULL,
    "expiresAt" DATETIME NOT NULL,
    "decidedAt" DATETIME,
    CONSTRAINT "Approval_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Approval_organizationId_executionId_fkey" FOREIGN KEY ("organizationId", "executionId") REFERENCES "Execution" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Skill" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "displayName" TEXT NOT NULL,
    "description" TEXT NOT NULL,
    "prompt" TEXT NOT NULL,
    "category" TEXT NOT NULL,
    "builtInTools" JSONB NOT NULL,
    "requiredMCPs" JSONB NOT NULL,
    "visibility" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Skill_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Skill_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "SpaceSkill" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "skillId" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "addedAt" DATETIME NOT NULL,
    "addedBy" TEXT NOT NULL,

    PRIMARY KEY ("spaceId", "skillId"),
    CONSTRAINT "SpaceSkill_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "McpServer" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "mcpType" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "description" TEXT,
    "isActive" BOOLEAN NOT NULL DEFAULT true,
    "url" TEXT NOT NULL,
    "transport" TEXT NOT NULL,
    "headers" JSONB NOT NULL,
    "permissions" JSONB NOT NULL,
    "usageCount" INTEGER NOT NULL DEFAULT 0,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "McpServer_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "McpServer_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "McpCredential" (
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "ciphertext" BLOB NOT NULL,
    "isSecret" BOOLEAN NOT NULL,
    "updatedAt" DATETIME NOT NULL,

    PRIMARY KEY ("mcpId", "name"),
    CONSTRAINT "McpCredential_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "SpaceMcp" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "addedAt" DATETIME NOT NULL,
    "addedBy" TEXT NOT NULL,

    PRIMARY KEY ("spaceId", "mcpId"),
    CONSTRAINT "SpaceMcp_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "SpaceMcp_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_Execution" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "agentOrganizationId" TEXT NOT NULL,
    "agentVersion" INTEGER NOT NULL,
    "userId" TEXT NOT NULL,
    "chatId" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "taskId" TEXT,
    "missionId" TEXT,
    "parentExecutionId" TEXT,
    "rootExecutionId" TEXT NOT NULL,
    "depth" INTEGER NOT NULL DEFAULT 0,
    "status" TEXT NOT NULL,
    "waitingFor" TEXT,
    "message" TEXT NOT NULL,
    "mediaIds" JSONB NOT NULL DEFAULT [],
    "preview" TEXT NOT NULL,
    "modelOverride" TEXT,
    "model" TEXT,
    "result" TEXT,
    "error" TEXT,
    "inputTokens" INTEGER NOT NULL DEFAULT 0,
    "outputTokens" INTEGER NOT NULL DEFAULT 0,
    "usageEstimated" BOOLEAN NOT NULL DEFAULT false,
    "queueSeq" INTEGER NOT NULL,
    "attempt" INTEGER NOT NULL DEFAULT 0,
    "leaseOwner" TEXT,
    "leaseUntil" DATETIME,
    "wantsCancel" BOOLEAN NOT NULL DEFAULT false,
    "seqReserved" INTEGER NOT NULL DEFAULT 1,
    "terminalSeq" INTEGER,
    "createdAt" DATETIME NOT NULL,
    "startedAt" DATETIME,
    "waitingSince" DATETIME,
    "waitedMs" INTEGER NOT NULL DEFAULT 0,
    "completedAt" DATETIME,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Execution_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Execution_agentOrganizationId_agentId_fkey" FOREIGN KEY ("agentOrganizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Execution_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Execution_organizationId_chatId_fkey" FOREIGN KEY ("organizationId", "chatId") REFERENCES "Chat" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Execution_organizationId_sessionId_fkey" FOREIGN KEY ("organizationId", "sessionId") REFERENCES "Session" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Execution_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Execution_organizationId_parentExecutionId_fkey" FOREIGN KEY ("organizationId", "parentExecutionId") REFERENCES "Execution" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);
INSERT INTO "new_Execution" ("agentId", "agentOrganizationId", "agentVersion", "attempt", "chatId", "completedAt", "createdAt", "depth", "error", "id", "inputTokens", "leaseOwner", "leaseUntil", "mediaIds", "message", "missionId", "model", "modelOverride", "organizationId", "outputTokens", "parentExecutionId", "preview", "queueSeq", "result", "rootExecutionId", "seqReserved", "sessionId", "spaceId", "startedAt", "status", "taskId", "terminalSeq", "updatedAt", "usageEstimated", "userId", "waitingFor", "wantsCancel") SELECT "agentId", "agentOrganizationId", "agentVersion", "attempt", "chatId", "completedAt", "createdAt", "depth", "error", "id", "inputTokens", "leaseOwner", "leaseUntil", "mediaIds", "message", "missionId", "model", "modelOverride", "organizationId", "outputTokens", "parentExecutionId", "preview", "queueSeq", "result", "rootExecutionId", "seqReserved", "sessionId", "spaceId", "startedAt", "status", "taskId", "terminalSeq", "updatedAt", "usageEstimated", "userId", "waitingFor", "wantsCancel" FROM "Execution";
DROP TABLE "Execution";
ALTER TABLE "new_Execution" RENAME TO "Execution";
CREATE INDEX "Execution_organizationId_createdAt_id_idx" ON "Execution"("organizationId", "createdAt" DESC, "id" DESC);
CREATE INDEX "Execution_organizationId_status_createdAt_id_idx" ON "Execution"("organizationId", "status", "createdAt" DESC, "id" DESC);
CREATE INDEX "Execution_organizationId_agentId_createdAt_id_idx" ON "Execution"("organizationId", "agentId", "createdAt" DESC, "id" DESC);
CREATE INDEX "Execution_organizationId_chatId_createdAt_id_idx" ON "Execution"("organizationId", "chatId", "createdAt" DESC, "id" DESC);
CREATE INDEX "Execution_organizationId_spaceId_createdAt_id_idx" ON "Execution"("organizationId", "spaceId", "createdAt" DESC, "id" DESC);
CREATE INDEX "Execution_organizationId_missionId_createdAt_id_idx" ON "Execution"("organizationId", "missionId", "createdAt" DESC, "id" DESC);
CREATE INDEX "Execution_organizationId_taskId_idx" ON "Execution"("organizationId", "taskId");
CREATE INDEX "Execution_organizationId_parentExecutionId_idx" ON "Execution"("organizationId", "parentExecutionId");
CREATE INDEX "Execution_organizationId_rootExecutionId_idx" ON "Execution"("organizationId", "rootExecutionId");
CREATE INDEX "Execution_status_leaseUntil_idx" ON "Execution"("status", "leaseUntil");
CREATE INDEX "Execution_agentOrganizationId_agentId_idx" ON "Execution"("agentOrganizationId", "agentId");
CREATE UNIQUE INDEX "Execution_organizationId_id_key" ON "Execution"("organizationId", "id");
CREATE UNIQUE INDEX "Execution_sessionId_queueSeq_key" ON "Execution"("sessionId", "queueSeq");
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

-- CreateIndex
CREATE INDEX "Approval_organizationId_status_createdAt_id_idx" ON "Approval"("organizationId", "status", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Approval_organizationId_createdAt_id_idx" ON "Approval"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Approval_status_expiresAt_idx" ON "Approval"("status", "expiresAt");

-- CreateIndex
CREATE UNIQUE INDEX "Approval_organizationId_id_key" ON "Approval"("organizationId", "id");

-- CreateIndex
CREATE UNIQUE INDEX "Approval_executionId_step_position_key" ON "Approval"("executionId", "step", "position");

-- CreateIndex
CREATE INDEX "Skill_organizationId_createdAt_id_idx" ON "Skill"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Skill_visibility_createdAt_id_idx" ON "Skill"("visibility", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "Skill_organizationId_id_key" ON "Skill"("organizationId", "id");

-- CreateIndex
CREATE UNIQUE INDEX "Skill_organizationId_name_key" ON "Skill"("organizationId", "name");

-- CreateIndex
CREATE INDEX "SpaceSkill_organizationId_skillId_idx" ON "SpaceSkill"("organizationId", "skillId");

-- CreateIndex
CREATE INDEX "McpServer_organizationId_createdAt_id_idx" ON "McpServer"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "McpServer_organizationId_id_key" ON "McpServer"("organizationId", "id");

-- CreateIndex
CREATE INDEX "SpaceMcp_organizationId_mcpId_idx" ON "SpaceMcp"("organizationId", "mcpId");

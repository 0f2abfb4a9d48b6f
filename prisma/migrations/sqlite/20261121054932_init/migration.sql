-- CreateTable
CREATE TABLE "Installation" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "keyCheck" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL
);

-- CreateTable
CREATE TABLE "Organization" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "name" TEXT NOT NULL,
    "slug" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL
);

-- CreateTable
CREATE TABLE "User" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "email" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "image" TEXT,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL
);

-- CreateTable
CREATE TABLE "Membership" (
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "role" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,

    PRIMARY KEY ("organizationId", "userId"),
    CONSTRAINT "Membership_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Membership_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Token" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "digest" TEXT NOT NULL,
    "preview" TEXT NOT NULL,
    "scopes" JSONB NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "expiresAt" DATETIME,
    "revokedAt" DATETIME,
    "lastUsedAt" DATETIME,
    CONSTRAINT "Token_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Token_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "AuditEvent" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "actor" TEXT NOT NULL,
    "action" TEXT NOT NULL,
    "target" TEXT NOT NULL,
    "at" DATETIME NOT NULL,
    CONSTRAINT "AuditEvent_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Space" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "description" TEXT,
    "visibility" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "instructions" TEXT,
    "isDefault" BOOLEAN NOT NULL DEFAULT false,
    "archivedAt" DATETIME,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Space_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Space_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Agent" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "role" TEXT NOT NULL,
    "systemPrompt" TEXT NOT NULL,
    "visibility" TEXT NOT NULL,
    "model" TEXT,
    "description" TEXT,
    "category" TEXT,
    "image" TEXT,
    "color" TEXT,
    "initialGreeting" TEXT,
    "tags" JSONB NOT NULL,
    "skillIds" JSONB NOT NULL,
    "mcpInstanceIds" JSONB NOT NULL,
    "mcpTypes" JSONB NOT NULL,
    "subagentIds" JSONB NOT NULL,
    "allowedTools" JSONB NOT NULL,
    "disallowedTools" JSONB NOT NULL,
    "maxTurns" INTEGER,
    "searchText" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "archivedAt" DATETIME,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Agent_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Agent_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "AgentTag" (
    "organizationId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "tag" TEXT NOT NULL,

    PRIMARY KEY ("agentId", "tag"),
    CONSTRAINT "AgentTag_organizationId_agentId_fkey" FOREIGN KEY ("organizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "AgentVersion" (
    "organizationId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "userId" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "agent" JSONB NOT NULL,

    PRIMARY KEY ("agentId", "version"),
    CONSTRAINT "AgentVersion_organizationId_agentId_fkey" FOREIGN KEY ("organizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "AgentVersion_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Chat" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "agentId" TEXT,
    "agentOrganizationId" TEXT,
    "ownerId" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "subtitle" TEXT,
    "status" TEXT NOT NULL,
    "lastMessage" TEXT,
    "sessionId" TEXT,
    "closedAt" DATETIME,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Chat_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Chat_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Chat_agentOrganizationId_agentId_fkey" FOREIGN KEY ("agentOrganizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Chat_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Session" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "chatId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "agentOrganizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "activeExecutionId" TEXT,
    "lastQueueSeq" INTEGER NOT NULL DEFAULT 0,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Session_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Session_organizationId_chatId_fkey" FOREIGN KEY ("organizationId", "chatId") REFERENCES "Chat" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Session_agentOrganizationId_agentId_fkey" FOREIGN KEY ("agentOrganizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Session_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Message" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "chatId" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "executionId" TEXT NOT NULL,
    "position" INTEGER NOT NULL,
    "role" TEXT NOT NULL,
    "content" TEXT NOT NULL,
    "toolCalls" JSONB NOT NULL,
    "interrupted" BOOLEAN NOT NULL DEFAULT false,
    "createdAt" DATETIME NOT NULL,
    CONSTRAINT "Message_organizationId_chatId_fkey" FOREIGN KEY ("organizationId", "chatId") REFERENCES "Chat" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Message_organizationId_sessionId_fkey" FOREIGN KEY ("organizationId", "sessionId") REFERENCES "Session" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Message_organizationId_executionId_fkey" FOREIGN KEY ("organizationId", "executionId") REFERENCES "Execution" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Execution" (
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

-- CreateTable
CREATE TABLE "ExecutionEvent" (
    "executionId" TEXT NOT NULL,
    "firstSeq" INTEGER NOT NULL,
    "lastSeq" INTEGER NOT NULL,
    "at" DATETIME NOT NULL,
    "events" TEXT NOT NULL,

    PRIMARY KEY ("executionId", "firstSeq"),
    CONSTRAINT "ExecutionEvent_executionId_fkey" FOREIGN KEY ("executionId") REFERENCES "Execution" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateIndex
CREATE UNIQUE INDEX "Organization_slug_key" ON "Organization"("slug");

-- CreateIndex
CREATE UNIQUE INDEX "User_email_key" ON "User"("email");

-- CreateIndex
CREATE INDEX "Membership_userId_idx" ON "Membership"("userId");

-- CreateIndex
CREATE UNIQUE INDEX "Token_digest_key" ON "Token"("digest");

-- CreateIndex
CREATE INDEX "Token_organizationId_userId_createdAt_id_idx" ON "Token"("organizationId", "userId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "AuditEvent_organizationId_at_id_idx" ON "AuditEvent"("organizationId", "at" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Space_organizationId_isDefault_idx" ON "Space"("organizationId", "isDefault");

-- CreateIndex
CREATE INDEX "Space_organizationId_createdAt_id_idx" ON "Space"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "Space_organizationId_id_key" ON "Space"("organizationId", "id");

-- CreateIndex
CREATE INDEX "Agent_organizationId_archivedAt_visibility_createdAt_id_idx" ON "Agent"("organizationId", "archivedAt", "visibility", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Agent_organizationId_archivedAt_createdAt_id_idx" ON "Agent"("organizationId", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Agent_organizationId_userId_archivedAt_createdAt_id_idx" ON "Agent"("organizationId", "userId", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Agent_visibility_archivedAt_createdAt_id_idx" ON "Agent"("visibility", "archivedAt", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "Agent_organizationId_id_key" ON "Agent"("organizationId", "id");

-- CreateIndex
CREATE INDEX "AgentTag_organizationId_tag_idx" ON "AgentTag"("organizationId", "tag");

-- CreateIndex
CREATE INDEX "Chat_organizationId_spaceId_createdAt_id_idx" ON "Chat"("organizationId", "spaceId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Chat_organizationId_createdAt_id_idx" ON "Chat"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Chat_agentOrganizationId_agentId_idx" ON "Chat"("agentOrganizationId", "agentId");

-- CreateIndex
CREATE UNIQUE INDEX "Chat_organizationId_id_key" ON "Chat"("organizationId", "id");

-- CreateIndex
CREATE INDEX "Session_organizationId_chatId_createdAt_id_idx" ON "Session"("organizationId", "chatId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Session_agentOrganizationId_agentId_idx" ON "Session"("agentOrganizationId", "agentId");

-- CreateIndex
CREATE UNIQUE INDEX "Session_organizationId_id_key" ON "Session"("organizationId", "id");

-- CreateIndex
CREATE INDEX "Message_organizationId_chatId_createdAt_position_idx" ON "Message"("organizationId", "chatId", "createdAt", "position");

-- CreateIndex
CREATE UNIQUE INDEX "Message_sessionId_position_key" ON "Message"("sessionId", "position");

-- CreateIndex
CREATE UNIQUE INDEX "Message_executionId_role_key" ON "Message"("executionId", "role");

-- CreateIndex
CREATE INDEX "Execution_organizationId_createdAt_id_idx" ON "Execution"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Execution_organizationId_status_createdAt_id_idx" ON "Execution"("organizationId", "status", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Execution_organizationId_agentId_createdAt_id_idx" ON "Execution"("organizationId", "agentId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Execution_organizationId_chatId_createdAt_id_idx" ON "Execution"("organizationId", "chatId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Execution_organizationId_spaceId_createdAt_id_idx" ON "Execution"("organizationId", "spaceId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Execution_organizationId_parentExecutionId_idx" ON "Execution"("organizationId", "parentExecutionId");

-- CreateIndex
CREATE INDEX "Execution_rootExecutionId_idx" ON "Execution"("rootExecutionId");

-- CreateIndex
CREATE INDEX "Execution_status_leaseUntil_idx" ON "Execution"("status", "leaseUntil");

-- CreateIndex
CREATE INDEX "Execution_agentOrganizationId_agentId_idx" ON "Execution"("agentOrganizationId", "agentId");

-- CreateIndex
CREATE UNIQUE INDEX "Execution_organizationId_id_key" ON "Execution"("organizationId", "id");

-- CreateIndex
CREATE UNIQUE INDEX "Execution_sessionId_queueSeq_key" ON "Execution"("sessionId", "queueSeq");

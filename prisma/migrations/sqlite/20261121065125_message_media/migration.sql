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
INSERT INTO "new_Execution" ("agentId", "agentOrganizationId", "agentVersion", "attempt", "chatId", "completedAt", "createdAt", "depth", "error", "id", "inputTokens", "leaseOwner", "leaseUntil", "message", "missionId", "model", "modelOverride", "organizationId", "outputTokens", "parentExecutionId", "preview", "queueSeq", "result", "rootExecutionId", "seqReserved", "sessionId", "spaceId", "startedAt", "status", "taskId", "terminalSeq", "updatedAt", "usageEstimated", "userId", "waitingFor", "wantsCancel") SELECT "agentId", "agentOrganizationId", "agentVersion", "attempt", "chatId", "completedAt", "createdAt", "depth", "error", "id", "inputTokens", "leaseOwner", "leaseUntil", "message", "missionId", "model", "modelOverride", "organizationId", "outputTokens", "parentExecutionId", "preview", "queueSeq", "result", "rootExecutionId", "seqReserved", "sessionId", "spaceId", "startedAt", "status", "taskId", "terminalSeq", "updatedAt", "usageEstimated", "userId", "waitingFor", "wantsCancel" FROM "Execution";
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

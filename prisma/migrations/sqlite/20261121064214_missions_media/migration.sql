-- CreateTable
CREATE TABLE "Mission" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "agentOrganizationId" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "goal" TEXT NOT NULL,
    "agentType" TEXT,
    "icon" TEXT,
    "visibility" TEXT NOT NULL,
    "maxTurns" INTEGER,
    "status" TEXT NOT NULL,
    "pauseReason" TEXT,
    "scheduleType" TEXT NOT NULL,
    "scheduleValue" TEXT,
    "timezone" TEXT NOT NULL,
    "overlap" TEXT NOT NULL,
    "catchUp" TEXT NOT NULL,
    "lastRunAt" DATETIME,
    "nextRunAt" DATETIME,
    "runCount" INTEGER NOT NULL DEFAULT 0,
    "executionId" TEXT,
    "archivedAt" DATETIME,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Mission_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Mission_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Mission_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Mission_agentOrganizationId_agentId_fkey" FOREIGN KEY ("agentOrganizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Media" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "mimeType" TEXT NOT NULL,
    "size" INTEGER NOT NULL,
    "createdAt" DATETIME NOT NULL,
    CONSTRAINT "Media_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Media_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_Organization" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "name" TEXT NOT NULL,
    "slug" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "running" INTEGER NOT NULL DEFAULT 0,
    "mediaBytes" BIGINT NOT NULL DEFAULT 0
);
INSERT INTO "new_Organization" ("createdAt", "id", "name", "running", "slug") SELECT "createdAt", "id", "name", "running", "slug" FROM "Organization";
DROP TABLE "Organization";
ALTER TABLE "new_Organization" RENAME TO "Organization";
CREATE UNIQUE INDEX "Organization_slug_key" ON "Organization"("slug");
CREATE TABLE "new_Chat" (
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
    "missionId" TEXT,
    "runNumber" INTEGER,
    "closedAt" DATETIME,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Chat_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Chat_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Chat_agentOrganizationId_agentId_fkey" FOREIGN KEY ("agentOrganizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Chat_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Chat_organizationId_missionId_fkey" FOREIGN KEY ("organizationId", "missionId") REFERENCES "Mission" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE
);
INSERT INTO "new_Chat" ("agentId", "agentOrganizationId", "closedAt", "createdAt", "id", "lastMessage", "organizationId", "ownerId", "sessionId", "spaceId", "status", "subtitle", "title", "updatedAt") SELECT "agentId", "agentOrganizationId", "closedAt", "createdAt", "id", "lastMessage", "organizationId", "ownerId", "sessionId", "spaceId", "status", "subtitle", "title", "updatedAt" FROM "Chat";
DROP TABLE "Chat";
ALTER TABLE "new_Chat" RENAME TO "Chat";
CREATE INDEX "Chat_organizationId_spaceId_createdAt_id_idx" ON "Chat"("organizationId", "spaceId", "createdAt" DESC, "id" DESC);
CREATE INDEX "Chat_organizationId_createdAt_id_idx" ON "Chat"("organizationId", "createdAt" DESC, "id" DESC);
CREATE INDEX "Chat_organizationId_missionId_idx" ON "Chat"("organizationId", "missionId");
CREATE INDEX "Chat_agentOrganizationId_agentId_idx" ON "Chat"("agentOrganizationId", "agentId");
CREATE UNIQUE INDEX "Chat_organizationId_id_key" ON "Chat"("organizationId", "id");
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

-- CreateIndex
CREATE INDEX "Mission_organizationId_createdAt_id_idx" ON "Mission"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Mission_nextRunAt_idx" ON "Mission"("nextRunAt");

-- CreateIndex
CREATE INDEX "Mission_agentOrganizationId_agentId_idx" ON "Mission"("agentOrganizationId", "agentId");

-- CreateIndex
CREATE UNIQUE INDEX "Mission_organizationId_id_key" ON "Mission"("organizationId", "id");

-- CreateIndex
CREATE INDEX "Media_organizationId_createdAt_id_idx" ON "Media"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "Media_organizationId_id_key" ON "Media"("organizationId", "id");

-- CreateIndex
CREATE INDEX "Execution_organizationId_missionId_createdAt_id_idx" ON "Execution"("organizationId", "missionId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Execution_organizationId_taskId_idx" ON "Execution"("organizationId", "taskId");

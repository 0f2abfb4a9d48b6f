-- CreateTable
CREATE TABLE "SpaceAgent" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "addedAt" DATETIME NOT NULL,
    "addedBy" TEXT NOT NULL,

    PRIMARY KEY ("spaceId", "agentId"),
    CONSTRAINT "SpaceAgent_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "SpaceAgent_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "SpaceAgent_organizationId_agentId_fkey" FOREIGN KEY ("organizationId", "agentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "SpaceFile" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "path" TEXT NOT NULL,
    "content" BLOB NOT NULL,
    "size" INTEGER NOT NULL,
    "updatedBy" TEXT NOT NULL,
    "updatedAt" DATETIME NOT NULL,

    PRIMARY KEY ("spaceId", "path"),
    CONSTRAINT "SpaceFile_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "SpaceFile_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Task" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "description" TEXT,
    "status" TEXT NOT NULL,
    "priority" TEXT NOT NULL,
    "assignedTo" TEXT,
    "assignedAgentId" TEXT,
    "spaceId" TEXT,
    "createdBy" TEXT NOT NULL,
    "executionId" TEXT,
    "result" TEXT,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    "completedAt" DATETIME,
    CONSTRAINT "Task_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Task_organizationId_assignedAgentId_fkey" FOREIGN KEY ("organizationId", "assignedAgentId") REFERENCES "Agent" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "Task_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "DataKey" (
    "organizationId" TEXT NOT NULL PRIMARY KEY,
    "wrapped" BLOB NOT NULL,
    "createdAt" DATETIME NOT NULL,
    CONSTRAINT "DataKey_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Secret" (
    "organizationId" TEXT NOT NULL,
    "scope" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "ciphertext" BLOB NOT NULL,
    "updatedBy" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,

    PRIMARY KEY ("organizationId", "scope", "name"),
    CONSTRAINT "Secret_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "UsageDay" (
    "organizationId" TEXT NOT NULL,
    "date" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "model" TEXT NOT NULL,
    "executions" INTEGER NOT NULL,
    "failed" INTEGER NOT NULL,
    "inputTokens" INTEGER NOT NULL,
    "outputTokens" INTEGER NOT NULL,

    PRIMARY KEY ("organizationId", "date", "agentId", "model"),
    CONSTRAINT "UsageDay_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_Space" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "description" TEXT,
    "visibility" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "instructions" TEXT,
    "isDefault" BOOLEAN NOT NULL DEFAULT false,
    "initializedAs" TEXT,
    "fileCount" INTEGER NOT NULL DEFAULT 0,
    "fileBytes" INTEGER NOT NULL DEFAULT 0,
    "archivedAt" DATETIME,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Space_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "Space_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User" ("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
INSERT INTO "new_Space" ("archivedAt", "createdAt", "description", "id", "instructions", "isDefault", "name", "organizationId", "ownerId", "updatedAt", "visibility") SELECT "archivedAt", "createdAt", "description", "id", "instructions", "isDefault", "name", "organizationId", "ownerId", "updatedAt", "visibility" FROM "Space";
DROP TABLE "Space";
ALTER TABLE "new_Space" RENAME TO "Space";
CREATE INDEX "Space_organizationId_isDefault_idx" ON "Space"("organizationId", "isDefault");
CREATE INDEX "Space_organizationId_createdAt_id_idx" ON "Space"("organizationId", "createdAt" DESC, "id" DESC);
CREATE UNIQUE INDEX "Space_organizationId_id_key" ON "Space"("organizationId", "id");
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

-- CreateIndex
CREATE INDEX "SpaceAgent_organizationId_agentId_idx" ON "SpaceAgent"("organizationId", "agentId");

-- CreateIndex
CREATE INDEX "Task_organizationId_createdAt_id_idx" ON "Task"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Task_organizationId_status_createdAt_id_idx" ON "Task"("organizationId", "status", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Task_organizationId_priority_createdAt_id_idx" ON "Task"("organizationId", "priority", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Task_organizationId_assignedTo_createdAt_id_idx" ON "Task"("organizationId", "assignedTo", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Task_organizationId_spaceId_createdAt_id_idx" ON "Task"("organizationId", "spaceId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "Task_organizationId_id_key" ON "Task"("organizationId", "id");

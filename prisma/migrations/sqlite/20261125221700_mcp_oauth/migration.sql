-- AlterTable
ALTER TABLE "ToolCall" ADD COLUMN "waitsForMcpId" TEXT;

-- CreateTable
CREATE TABLE "McpClient" (
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "issuer" TEXT NOT NULL,
    "isGiven" BOOLEAN NOT NULL,
    "sealed" BLOB NOT NULL,
    "redirectUri" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,

    PRIMARY KEY ("mcpId", "issuer"),
    CONSTRAINT "McpClient_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "McpConnection" (
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "url" TEXT NOT NULL,
    "issuer" TEXT NOT NULL,
    "sealed" BLOB NOT NULL,
    "account" TEXT,
    "scope" TEXT,
    "neededScope" TEXT,
    "hasEnded" BOOLEAN NOT NULL DEFAULT false,
    "expiresAt" DATETIME,
    "version" INTEGER NOT NULL DEFAULT 1,
    "refreshId" TEXT,
    "refreshUntil" DATETIME,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,

    PRIMARY KEY ("mcpId", "userId"),
    CONSTRAINT "McpConnection_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "McpConnection_organizationId_userId_fkey" FOREIGN KEY ("organizationId", "userId") REFERENCES "Membership" ("organizationId", "userId") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "McpSignIn" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "url" TEXT NOT NULL,
    "stateDigest" TEXT,
    "sessionId" TEXT,
    "sealed" BLOB NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "expiresAt" DATETIME NOT NULL,
    CONSTRAINT "McpSignIn_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "McpSignIn_organizationId_userId_fkey" FOREIGN KEY ("organizationId", "userId") REFERENCES "Membership" ("organizationId", "userId") ON DELETE CASCADE ON UPDATE CASCADE
);

-- AlterTable
ALTER TABLE "McpServer" ADD COLUMN "auth" TEXT NOT NULL DEFAULT 'headers';
ALTER TABLE "McpServer" ADD COLUMN "clientId" TEXT;
ALTER TABLE "McpServer" ADD COLUMN "clientSecret" BLOB;
ALTER TABLE "McpServer" ADD COLUMN "scope" TEXT;

-- CreateIndex
CREATE INDEX "McpConnection_organizationId_userId_idx" ON "McpConnection"("organizationId", "userId");

-- CreateIndex
CREATE UNIQUE INDEX "McpSignIn_stateDigest_key" ON "McpSignIn"("stateDigest");

-- CreateIndex
CREATE INDEX "McpSignIn_organizationId_userId_idx" ON "McpSignIn"("organizationId", "userId");

-- CreateIndex
CREATE INDEX "McpSignIn_mcpId_idx" ON "McpSignIn"("mcpId");

-- CreateIndex
CREATE INDEX "McpSignIn_expiresAt_idx" ON "McpSignIn"("expiresAt");

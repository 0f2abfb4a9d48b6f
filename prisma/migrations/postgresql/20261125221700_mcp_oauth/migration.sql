-- AlterEnum
ALTER TYPE "ExecutionWait" ADD VALUE 'authorization';

-- AlterTable
ALTER TABLE "ToolCall" ADD COLUMN     "waitsForMcpId" TEXT;

-- AlterTable
ALTER TABLE "McpServer" ADD COLUMN     "auth" TEXT NOT NULL DEFAULT 'headers',
ADD COLUMN     "clientId" TEXT,
ADD COLUMN     "clientSecret" BYTEA,
ADD COLUMN     "scope" TEXT;

-- CreateTable
CREATE TABLE "McpClient" (
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "issuer" TEXT NOT NULL,
    "isGiven" BOOLEAN NOT NULL,
    "sealed" BYTEA NOT NULL,
    "redirectUri" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "McpClient_pkey" PRIMARY KEY ("mcpId","issuer")
);

-- CreateTable
CREATE TABLE "McpConnection" (
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "url" TEXT NOT NULL,
    "issuer" TEXT NOT NULL,
    "sealed" BYTEA NOT NULL,
    "account" TEXT,
    "scope" TEXT,
    "neededScope" TEXT,
    "hasEnded" BOOLEAN NOT NULL DEFAULT false,
    "expiresAt" TIMESTAMP(3),
    "version" INTEGER NOT NULL DEFAULT 1,
    "refreshId" TEXT,
    "refreshUntil" TIMESTAMP(3),
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "McpConnection_pkey" PRIMARY KEY ("mcpId","userId")
);

-- CreateTable
CREATE TABLE "McpSignIn" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "url" TEXT NOT NULL,
    "stateDigest" TEXT,
    "sessionId" TEXT,
    "sealed" BYTEA NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "expiresAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "McpSignIn_pkey" PRIMARY KEY ("id")
);

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

-- AddForeignKey
ALTER TABLE "McpClient" ADD CONSTRAINT "McpClient_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "McpConnection" ADD CONSTRAINT "McpConnection_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "McpConnection" ADD CONSTRAINT "McpConnection_organizationId_userId_fkey" FOREIGN KEY ("organizationId", "userId") REFERENCES "Membership"("organizationId", "userId") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "McpSignIn" ADD CONSTRAINT "McpSignIn_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "McpSignIn" ADD CONSTRAINT "McpSignIn_organizationId_userId_fkey" FOREIGN KEY ("organizationId", "userId") REFERENCES "Membership"("organizationId", "userId") ON DELETE CASCADE ON UPDATE CASCADE;

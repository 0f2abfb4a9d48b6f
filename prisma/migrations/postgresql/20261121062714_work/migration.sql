-- CreateEnum
CREATE TYPE "TaskStatus" AS ENUM ('pending', 'in_progress', 'completed', 'cancelled');

-- CreateEnum
CREATE TYPE "TaskPriority" AS ENUM ('low', 'medium', 'high', 'urgent');

-- AlterTable
ALTER TABLE "Space" ADD COLUMN     "fileBytes" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "fileCount" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "initializedAs" TEXT;

-- CreateTable
CREATE TABLE "SpaceAgent" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "addedAt" TIMESTAMP(3) NOT NULL,
    "addedBy" TEXT NOT NULL,

    CONSTRAINT "SpaceAgent_pkey" PRIMARY KEY ("spaceId","agentId")
);

-- CreateTable
CREATE TABLE "SpaceFile" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "path" TEXT NOT NULL,
    "content" BYTEA NOT NULL,
    "size" INTEGER NOT NULL,
    "updatedBy" TEXT NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "SpaceFile_pkey" PRIMARY KEY ("spaceId","path")
);

-- CreateTable
CREATE TABLE "Task" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "description" TEXT,
    "status" "TaskStatus" NOT NULL,
    "priority" "TaskPriority" NOT NULL,
    "assignedTo" TEXT,
    "assignedAgentId" TEXT,
    "spaceId" TEXT,
    "createdBy" TEXT NOT NULL,
    "executionId" TEXT,
    "result" TEXT,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,
    "completedAt" TIMESTAMP(3),

    CONSTRAINT "Task_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "DataKey" (
    "organizationId" TEXT NOT NULL,
    "wrapped" BYTEA NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "DataKey_pkey" PRIMARY KEY ("organizationId")
);

-- CreateTable
CREATE TABLE "Secret" (
    "organizationId" TEXT NOT NULL,
    "scope" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "ciphertext" BYTEA NOT NULL,
    "updatedBy" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "Secret_pkey" PRIMARY KEY ("organizationId","scope","name")
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

    CONSTRAINT "UsageDay_pkey" PRIMARY KEY ("organizationId","date","agentId","model")
);

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

-- AddForeignKey
ALTER TABLE "SpaceAgent" ADD CONSTRAINT "SpaceAgent_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "SpaceAgent" ADD CONSTRAINT "SpaceAgent_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "SpaceAgent" ADD CONSTRAINT "SpaceAgent_organizationId_agentId_fkey" FOREIGN KEY ("organizationId", "agentId") REFERENCES "Agent"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "SpaceFile" ADD CONSTRAINT "SpaceFile_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "SpaceFile" ADD CONSTRAINT "SpaceFile_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Task" ADD CONSTRAINT "Task_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Task" ADD CONSTRAINT "Task_organizationId_assignedAgentId_fkey" FOREIGN KEY ("organizationId", "assignedAgentId") REFERENCES "Agent"("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Task" ADD CONSTRAINT "Task_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space"("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "DataKey" ADD CONSTRAINT "DataKey_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Secret" ADD CONSTRAINT "Secret_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "UsageDay" ADD CONSTRAINT "UsageDay_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

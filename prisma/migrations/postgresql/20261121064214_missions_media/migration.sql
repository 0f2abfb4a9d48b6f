-- CreateEnum
CREATE TYPE "MissionStatus" AS ENUM ('pending', 'running', 'completed', 'paused');

-- CreateEnum
CREATE TYPE "ScheduleType" AS ENUM ('none', 'once', 'cron', 'continuous');

-- CreateEnum
CREATE TYPE "ScheduleOverlap" AS ENUM ('skip', 'queue');

-- CreateEnum
CREATE TYPE "ScheduleCatchUp" AS ENUM ('last', 'skip');

-- AlterTable
ALTER TABLE "Organization" ADD COLUMN     "mediaBytes" BIGINT NOT NULL DEFAULT 0;

-- AlterTable
ALTER TABLE "Chat" ADD COLUMN     "missionId" TEXT,
ADD COLUMN     "runNumber" INTEGER;

-- CreateTable
CREATE TABLE "Mission" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "agentOrganizationId" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "goal" TEXT NOT NULL,
    "agentType" TEXT,
    "icon" TEXT,
    "visibility" "SpaceVisibility" NOT NULL,
    "maxTurns" INTEGER,
    "status" "MissionStatus" NOT NULL,
    "pauseReason" TEXT,
    "scheduleType" "ScheduleType" NOT NULL,
    "scheduleValue" TEXT,
    "timezone" TEXT NOT NULL,
    "overlap" "ScheduleOverlap" NOT NULL,
    "catchUp" "ScheduleCatchUp" NOT NULL,
    "lastRunAt" TIMESTAMP(3),
    "nextRunAt" TIMESTAMP(3),
    "runCount" INTEGER NOT NULL DEFAULT 0,
    "executionId" TEXT,
    "archivedAt" TIMESTAMP(3),
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "Mission_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Media" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "mimeType" TEXT NOT NULL,
    "size" INTEGER NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "Media_pkey" PRIMARY KEY ("id")
);

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
CREATE INDEX "Chat_organizationId_missionId_idx" ON "Chat"("organizationId", "missionId");

-- CreateIndex
CREATE INDEX "Execution_organizationId_missionId_createdAt_id_idx" ON "Execution"("organizationId", "missionId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Execution_organizationId_taskId_idx" ON "Execution"("organizationId", "taskId");

-- AddForeignKey
ALTER TABLE "Chat" ADD CONSTRAINT "Chat_organizationId_missionId_fkey" FOREIGN KEY ("organizationId", "missionId") REFERENCES "Mission"("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Mission" ADD CONSTRAINT "Mission_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Mission" ADD CONSTRAINT "Mission_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Mission" ADD CONSTRAINT "Mission_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Mission" ADD CONSTRAINT "Mission_agentOrganizationId_agentId_fkey" FOREIGN KEY ("agentOrganizationId", "agentId") REFERENCES "Agent"("organizationId", "id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Media" ADD CONSTRAINT "Media_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Media" ADD CONSTRAINT "Media_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

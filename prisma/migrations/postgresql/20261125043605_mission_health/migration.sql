-- AlterEnum
ALTER TYPE "MissionStatus" ADD VALUE 'failed';

-- AlterTable
ALTER TABLE "Mission" ADD COLUMN     "failureCount" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "lastError" TEXT,
ADD COLUMN     "lastExecutionId" TEXT,
ADD COLUMN     "lastStatus" TEXT,
ADD COLUMN     "maxRuns" INTEGER,
ADD COLUMN     "skippedCount" INTEGER NOT NULL DEFAULT 0;

-- AlterTable
ALTER TABLE "Chat" ADD COLUMN     "isBranched" BOOLEAN NOT NULL DEFAULT false;

-- AlterTable
ALTER TABLE "Session" ADD COLUMN     "activeBranchId" TEXT,
ADD COLUMN     "parentPosition" INTEGER,
ADD COLUMN     "parentSessionId" TEXT,
ADD COLUMN     "rootSessionId" TEXT;

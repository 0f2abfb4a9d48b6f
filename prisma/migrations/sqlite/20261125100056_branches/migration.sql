-- AlterTable
-- By hand: a table with triggers is not rebuilt for a column.
ALTER TABLE "Chat" ADD COLUMN "isBranched" BOOLEAN NOT NULL DEFAULT false;

-- AlterTable
ALTER TABLE "Session" ADD COLUMN "activeBranchId" TEXT;
ALTER TABLE "Session" ADD COLUMN "parentPosition" INTEGER;
ALTER TABLE "Session" ADD COLUMN "parentSessionId" TEXT;
ALTER TABLE "Session" ADD COLUMN "rootSessionId" TEXT;

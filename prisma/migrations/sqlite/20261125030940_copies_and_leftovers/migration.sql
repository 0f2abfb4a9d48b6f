-- AlterTable
ALTER TABLE "Installation" ADD COLUMN "starts" INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "Installation" ADD COLUMN "pausedBy" TEXT;
ALTER TABLE "Installation" ADD COLUMN "pausedAt" DATETIME;

-- CreateTable
CREATE TABLE "MediaDraft" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "createdAt" DATETIME NOT NULL
);

-- AlterTable
ALTER TABLE "Installation" ADD COLUMN     "pausedAt" TIMESTAMP(3),
ADD COLUMN     "pausedBy" TEXT,
ADD COLUMN     "starts" INTEGER NOT NULL DEFAULT 0;

-- CreateTable
CREATE TABLE "MediaDraft" (
    "id" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "MediaDraft_pkey" PRIMARY KEY ("id")
);

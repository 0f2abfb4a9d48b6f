-- AlterTable
ALTER TABLE "Token" ADD COLUMN     "tokenId" TEXT;

-- AlterTable
ALTER TABLE "AuditEvent" ADD COLUMN     "tokenId" TEXT;

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "tokenId" TEXT;

-- AlterTable
ALTER TABLE "Mission" ADD COLUMN     "tokenId" TEXT;

-- CreateIndex
CREATE INDEX "Mission_tokenId_idx" ON "Mission"("tokenId");

-- AlterTable
ALTER TABLE "Webhook" ADD COLUMN     "executionId" TEXT,
ADD COLUMN     "push" BYTEA,
ADD COLUMN     "runEndedAt" TIMESTAMP(3);

-- CreateIndex
CREATE INDEX "Webhook_executionId_idx" ON "Webhook"("executionId");

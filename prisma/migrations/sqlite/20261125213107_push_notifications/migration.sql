-- AlterTable
ALTER TABLE "Webhook" ADD COLUMN "executionId" TEXT;
ALTER TABLE "Webhook" ADD COLUMN "push" BLOB;
ALTER TABLE "Webhook" ADD COLUMN "runEndedAt" DATETIME;

-- CreateIndex
CREATE INDEX "Webhook_executionId_idx" ON "Webhook"("executionId");

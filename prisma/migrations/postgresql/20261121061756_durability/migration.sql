-- DropIndex
DROP INDEX "Execution_rootExecutionId_idx";

-- AlterTable
ALTER TABLE "Organization" ADD COLUMN     "running" INTEGER NOT NULL DEFAULT 0;

-- CreateTable
CREATE TABLE "IdempotencyRecord" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "inputDigest" TEXT NOT NULL,
    "executionId" TEXT,
    "answer" TEXT,
    "leaseUntil" TIMESTAMP(3),
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "IdempotencyRecord_pkey" PRIMARY KEY ("id")
);

-- CreateIndex
CREATE INDEX "IdempotencyRecord_createdAt_idx" ON "IdempotencyRecord"("createdAt");

-- CreateIndex
CREATE INDEX "Execution_organizationId_rootExecutionId_idx" ON "Execution"("organizationId", "rootExecutionId");

-- CreateIndex
CREATE INDEX "ExecutionEvent_at_idx" ON "ExecutionEvent"("at");

-- AddForeignKey
ALTER TABLE "IdempotencyRecord" ADD CONSTRAINT "IdempotencyRecord_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

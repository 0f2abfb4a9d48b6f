-- DropIndex
DROP INDEX "Execution_rootExecutionId_idx";

-- CreateTable
CREATE TABLE "IdempotencyRecord" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "inputDigest" TEXT NOT NULL,
    "executionId" TEXT,
    "answer" TEXT,
    "leaseUntil" DATETIME,
    "createdAt" DATETIME NOT NULL,
    CONSTRAINT "IdempotencyRecord_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_Organization" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "name" TEXT NOT NULL,
    "slug" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "running" INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "new_Organization" ("createdAt", "id", "name", "slug") SELECT "createdAt", "id", "name", "slug" FROM "Organization";
DROP TABLE "Organization";
ALTER TABLE "new_Organization" RENAME TO "Organization";
CREATE UNIQUE INDEX "Organization_slug_key" ON "Organization"("slug");
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

-- CreateIndex
CREATE INDEX "IdempotencyRecord_createdAt_idx" ON "IdempotencyRecord"("createdAt");

-- CreateIndex
CREATE INDEX "Execution_organizationId_rootExecutionId_idx" ON "Execution"("organizationId", "rootExecutionId");

-- CreateIndex
CREATE INDEX "ExecutionEvent_at_idx" ON "ExecutionEvent"("at");

-- AlterTable
ALTER TABLE "Message" ADD COLUMN "reasoning" TEXT;

-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_UsageDay" (
    "organizationId" TEXT NOT NULL,
    "date" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "model" TEXT NOT NULL,
    "userId" TEXT NOT NULL DEFAULT '',
    "executions" INTEGER NOT NULL,
    "failed" INTEGER NOT NULL,
    "inputTokens" BIGINT NOT NULL,
    "outputTokens" BIGINT NOT NULL,

    PRIMARY KEY ("organizationId", "date", "agentId", "model", "userId"),
    CONSTRAINT "UsageDay_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);
INSERT INTO "new_UsageDay" ("agentId", "date", "executions", "failed", "inputTokens", "model", "organizationId", "outputTokens") SELECT "agentId", "date", "executions", "failed", "inputTokens", "model", "organizationId", "outputTokens" FROM "UsageDay";
DROP TABLE "UsageDay";
ALTER TABLE "new_UsageDay" RENAME TO "UsageDay";
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

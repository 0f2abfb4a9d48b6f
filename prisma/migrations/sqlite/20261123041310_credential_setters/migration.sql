-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_McpCredential" (
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "ciphertext" BLOB NOT NULL,
    "isSecret" BOOLEAN NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    "updatedBy" TEXT NOT NULL,

    PRIMARY KEY ("mcpId", "name"),
    CONSTRAINT "McpCredential_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);
-- Servers of the version before cannot set credentials: stop all of them first.
-- Who has set what is there already is told by the audit log, whose event has the same time; otherwise it was the owner.
INSERT INTO "new_McpCredential" ("ciphertext", "isSecret", "mcpId", "name", "organizationId", "updatedAt", "updatedBy") SELECT "ciphertext", "isSecret", "mcpId", "name", "organizationId", "updatedAt", coalesce(
  (SELECT a."actor" FROM "AuditEvent" a
    WHERE a."organizationId" = c."organizationId" AND a."at" = c."updatedAt" AND a."target" = c."mcpId"
      AND a."action" IN ('mcp.create', 'mcp.update') LIMIT 1),
  (SELECT s."ownerId" FROM "McpServer" s WHERE s."id" = c."mcpId"))
FROM "McpCredential" c;
DROP TABLE "McpCredential";
ALTER TABLE "new_McpCredential" RENAME TO "McpCredential";
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

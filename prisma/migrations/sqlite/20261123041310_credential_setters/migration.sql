-- AlterTable
ALTER TABLE "McpCredential" ADD COLUMN "updatedBy" TEXT NOT NULL DEFAULT '';

-- Who has set what is there already is told by the audit log, whose event has the same time; otherwise it was the owner.
UPDATE "McpCredential" SET "updatedBy" = coalesce(
  (SELECT a."actor" FROM "AuditEvent" a
    WHERE a."organizationId" = "McpCredential"."organizationId" AND a."at" = "McpCredential"."updatedAt"
      AND a."target" = "McpCredential"."mcpId" AND a."action" IN ('mcp.create', 'mcp.update') LIMIT 1),
  (SELECT s."ownerId" FROM "McpServer" s WHERE s."id" = "McpCredential"."mcpId"));

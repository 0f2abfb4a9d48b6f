-- AlterTable
ALTER TABLE "Agent" ADD COLUMN     "advanced_tools" JSONB NOT NULL DEFAULT '[]',
ADD COLUMN     "slug" TEXT;

-- Agents that are there get the slug of their name where that is plain and nobody else's, else one of their id.
UPDATE "Agent" SET "slug" = 'agent-' || lower("id");
UPDATE "Agent" SET "slug" = lower(replace("name", ' ', '-')) WHERE "id" IN (
  SELECT "id" FROM (
    SELECT "id", row_number() OVER (
      PARTITION BY "organizationId", lower(replace("name", ' ', '-')) ORDER BY "createdAt", "id"
    ) AS "n"
    FROM "Agent"
    WHERE "archivedAt" IS NULL AND length("name") BETWEEN 1 AND 64 AND "name" = trim("name")
      AND "name" NOT LIKE '%  %' AND "name" ~ '^[A-Za-z0-9 ]+$'
  ) AS named WHERE "n" = 1
);
CREATE UNIQUE INDEX "Agent_organizationId_slug_key" ON "Agent"("organizationId", "slug") WHERE "archivedAt" IS NULL;

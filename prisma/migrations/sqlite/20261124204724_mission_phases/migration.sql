-- DropIndex
DROP INDEX "Mission_organizationId_visibility_userId_archivedAt_status_id_idx";

-- DropIndex
DROP INDEX "Mission_agentId_organizationId_visibility_userId_archivedAt_status_idx";

-- CreateIndex
CREATE INDEX "Mission_organizationId_visibility_userId_id_idx" ON "Mission"("organizationId", "visibility", "userId", "id");

-- CreateIndex
CREATE INDEX "Mission_agentId_idx" ON "Mission"("agentId");

-- How many missions there are is kept by their status, but for what runs change: those that are running count as pending.
DROP VIEW "MissionTotal";

-- Who alone may see a mission: the owner of what is private of it, its agent and its space. Nobody, where these differ.
CREATE VIEW "MissionTotal" AS
WITH "seen" AS (
  SELECT m."id", m."organizationId", m."agentId", m."spaceId", replace(m."status", 'running', 'pending') AS "value",
    CASE m."visibility" WHEN 'private' THEN m."userId" END AS "ofMission",
    CASE a."visibility" WHEN 'private' THEN a."userId" END AS "ofAgent",
    CASE s."visibility" WHEN 'private' THEN s."ownerId" END AS "ofSpace"
  FROM "Mission" m
  CROSS JOIN "Space" s ON s."organizationId" = m."organizationId" AND s."id" = m."spaceId"
  LEFT JOIN "Agent" a ON a."organizationId" = m."organizationId" AND a."id" = m."agentId"
  WHERE m."archivedAt" IS NULL
)
SELECT "id", "organizationId", "agentId", "spaceId", 'missions' AS "list",
  coalesce("ofMission", "ofAgent", "ofSpace", '') AS "userId", "value" FROM "seen"
WHERE coalesce("ofAgent" = coalesce("ofMission", "ofAgent"), true)
  AND coalesce("ofSpace" = coalesce("ofMission", "ofAgent", "ofSpace"), true)
UNION ALL SELECT "id", "organizationId", "agentId", "spaceId", 'missions for admins',
  coalesce("ofMission", "ofAgent", ''), "value" FROM "seen"
WHERE coalesce("ofAgent" = coalesce("ofMission", "ofAgent"), true);

DROP TRIGGER "Mission_totals_before_update";
DROP TRIGGER "Mission_totals_after_update";

CREATE TRIGGER "Mission_totals_before_update" BEFORE UPDATE
  OF "userId", "visibility", "agentId", "agentOrganizationId", "spaceId", "archivedAt", "status" ON "Mission"
WHEN (OLD."userId", OLD."visibility", OLD."agentId", OLD."agentOrganizationId", OLD."spaceId", OLD."archivedAt",
    replace(OLD."status", 'running', 'pending'))
  IS DISTINCT FROM (NEW."userId", NEW."visibility", NEW."agentId", NEW."agentOrganizationId", NEW."spaceId",
    NEW."archivedAt", replace(NEW."status", 'running', 'pending')) BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "MissionTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Mission_totals_after_update" AFTER UPDATE
  OF "userId", "visibility", "agentId", "agentOrganizationId", "spaceId", "archivedAt", "status" ON "Mission"
WHEN (OLD."userId", OLD."visibility", OLD."agentId", OLD."agentOrganizationId", OLD."spaceId", OLD."archivedAt",
    replace(OLD."status", 'running', 'pending'))
  IS DISTINCT FROM (NEW."userId", NEW."visibility", NEW."agentId", NEW."agentOrganizationId", NEW."spaceId",
    NEW."archivedAt", replace(NEW."status", 'running', 'pending')) BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "MissionTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

-- The rows that are there already.
DELETE FROM "Total" WHERE "list" IN ('missions', 'missions for admins');
INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", count(*) FROM "MissionTotal" GROUP BY 1, 2, 3, 4;

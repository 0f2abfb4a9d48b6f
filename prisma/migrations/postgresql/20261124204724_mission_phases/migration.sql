-- DropIndex
DROP INDEX "Mission_organizationId_visibility_userId_archivedAt_status__idx";

-- DropIndex
DROP INDEX "Mission_agentId_organizationId_visibility_userId_archivedAt_idx";

-- CreateIndex
CREATE INDEX "Mission_organizationId_visibility_userId_id_idx" ON "Mission"("organizationId", "visibility", "userId", "id");

-- CreateIndex
CREATE INDEX "Mission_agentId_idx" ON "Mission"("agentId");

-- How many missions there are is kept by their status, but for what runs change: those that are running count as pending.

-- Who alone may see a mission: the owner of what is private of it, its agent and its space. Nobody, where these differ.
CREATE OR REPLACE FUNCTION "totalsOf"(it "Mission") RETURNS SETOF "Total" LANGUAGE sql STABLE AS $$
  SELECT it."organizationId", "list", coalesce("ofMission", "ofAgent", "ofSpace", ''),
    replace(it."status"::text, 'running', 'pending'), 1
  FROM "Space" space
  LEFT JOIN "Agent" agent ON agent."organizationId" = it."organizationId" AND agent."id" = it."agentId"
  CROSS JOIN (VALUES ('missions'), ('missions for admins')) AS lists("list")
  CROSS JOIN LATERAL (VALUES (
    CASE it."visibility" WHEN 'private' THEN it."userId" END,
    CASE agent."visibility" WHEN 'private' THEN agent."userId" END,
    CASE WHEN space."visibility" = 'private' AND "list" = 'missions' THEN space."ownerId" END
  )) AS seen("ofMission", "ofAgent", "ofSpace")
  WHERE space."organizationId" = it."organizationId" AND space."id" = it."spaceId" AND it."archivedAt" IS NULL
    AND coalesce("ofAgent" = coalesce("ofMission", "ofAgent"), true)
    AND coalesce("ofSpace" = coalesce("ofMission", "ofAgent", "ofSpace"), true)
$$;

-- Not where a run begins or ends and the mission goes on: it would wait for all others of the organization.
DROP TRIGGER "totals" ON "Mission";
CREATE TRIGGER "totals" AFTER INSERT OR DELETE ON "Mission" FOR EACH ROW EXECUTE FUNCTION "keepTotals"();
CREATE TRIGGER "totals_update" AFTER UPDATE
    OF "userId", "visibility", "agentId", "agentOrganizationId", "spaceId", "archivedAt", "status"
  ON "Mission" FOR EACH ROW
  WHEN ((OLD."userId", OLD."visibility", OLD."agentId", OLD."agentOrganizationId", OLD."spaceId", OLD."archivedAt",
      replace(OLD."status"::text, 'running', 'pending'))
    IS DISTINCT FROM (NEW."userId", NEW."visibility", NEW."agentId", NEW."agentOrganizationId", NEW."spaceId",
      NEW."archivedAt", replace(NEW."status"::text, 'running', 'pending')))
  EXECUTE FUNCTION "keepTotals"();

-- The rows that are there already: nobody changes any more until the trigger is there.
DELETE FROM "Total" WHERE "list" IN ('missions', 'missions for admins');
INSERT INTO "Total" SELECT totals."organizationId", totals."list", totals."userId", totals."value", count(*)
FROM "Mission" it, "totalsOf"(it) totals GROUP BY 1, 2, 3, 4;

-- CreateTable
CREATE TABLE "Total" (
    "organizationId" TEXT NOT NULL,
    "list" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "value" TEXT NOT NULL,
    "count" INTEGER NOT NULL,

    CONSTRAINT "Total_pkey" PRIMARY KEY ("organizationId","list","userId","value")
);

-- The totals that a row counts in.

CREATE FUNCTION "totalsOf"(it "Agent") RETURNS SETOF "Total" LANGUAGE sql STABLE AS $$
  SELECT "of", 'agents', "user", it."visibility"::text, 1
  FROM (VALUES (it."organizationId", ''), (it."organizationId", it."userId"), ('', '')) AS lists("of", "user")
  WHERE it."archivedAt" IS NULL
    AND ("user" <> '' OR it."visibility" = 'public' OR it."visibility" = 'organization' AND "of" <> '')
  UNION ALL SELECT "of", 'tagged agents', '', it."visibility" || ' ' || tag, 1
  FROM (VALUES (it."organizationId"), ('')) AS lists("of"), jsonb_array_elements_text(it."tags") AS tag
  WHERE it."archivedAt" IS NULL AND (it."visibility" = 'public' OR it."visibility" = 'organization' AND "of" <> '')
$$;

CREATE FUNCTION "totalsOf"(it "Skill") RETURNS SETOF "Total" LANGUAGE sql STABLE AS $$
  SELECT CASE it."visibility" WHEN 'public' THEN '' ELSE it."organizationId" END, 'skills',
    CASE it."visibility" WHEN 'private' THEN it."ownerId" ELSE '' END, '', 1
$$;

CREATE FUNCTION "totalsOf"(it "McpServer") RETURNS SETOF "Total" LANGUAGE sql STABLE AS $$
  SELECT it."organizationId", 'mcps', '', '', 1
$$;

CREATE FUNCTION "totalsOf"(it "Space") RETURNS SETOF "Total" LANGUAGE sql STABLE AS $$
  SELECT it."organizationId", "list",
    CASE WHEN it."visibility" = 'private' AND "list" = 'spaces' THEN it."ownerId" ELSE '' END, '', 1
  FROM (VALUES ('spaces'), ('spaces for admins')) AS lists("list") WHERE it."archivedAt" IS NULL
$$;

-- Who alone may see a mission: the owner of what is private of it, its agent and its space. Nobody, where these differ.
CREATE FUNCTION "totalsOf"(it "Mission") RETURNS SETOF "Total" LANGUAGE sql STABLE AS $$
  SELECT it."organizationId", "list", coalesce("ofMission", "ofAgent", "ofSpace", ''), '', 1
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

-- Where a mission counts depends on its space and its agent, which somebody else may be changing just now: so those of
-- an organization are counted by one after the other.
CREATE FUNCTION "lockMissionTotals"("of" text) RETURNS void LANGUAGE sql AS $$
  SELECT pg_advisory_xact_lock(hashtextextended('missions ' || "of", 0))
$$;

-- In one order, so that no two wait for each other. An organization that is deleted has taken its totals along.
CREATE FUNCTION "keepTotals"() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF TG_TABLE_NAME = 'Mission' THEN
    PERFORM "lockMissionTotals"(coalesce(NEW."organizationId", OLD."organizationId"));
  END IF;
  INSERT INTO "Total" AS kept
  SELECT "organizationId", "list", "userId", "value", sum("count")
  FROM (
    SELECT * FROM "totalsOf"(NEW) WHERE TG_OP <> 'DELETE'
    UNION ALL SELECT "organizationId", "list", "userId", "value", -"count" FROM "totalsOf"(OLD) WHERE TG_OP <> 'INSERT'
  ) AS moved
  WHERE TG_OP <> 'DELETE' OR "organizationId" = ''
    OR EXISTS (SELECT FROM "Organization" WHERE "id" = moved."organizationId")
  GROUP BY 1, 2, 3, 4 HAVING sum("count") <> 0
  ORDER BY 1, 2, 3, 4
  ON CONFLICT ("organizationId", "list", "userId", "value") DO UPDATE SET "count" = kept."count" + excluded."count";
  RETURN NULL;
END $$;

-- At the end of the transaction: whoever has counted keeps all others waiting until it has ended.
CREATE CONSTRAINT TRIGGER "totals" AFTER INSERT OR DELETE OR UPDATE OF "userId", "visibility", "archivedAt", "tags"
  ON "Agent" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "keepTotals"();
CREATE CONSTRAINT TRIGGER "totals" AFTER INSERT OR DELETE OR UPDATE OF "ownerId", "visibility"
  ON "Skill" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "keepTotals"();
CREATE CONSTRAINT TRIGGER "totals" AFTER INSERT OR DELETE
  ON "McpServer" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "keepTotals"();
CREATE CONSTRAINT TRIGGER "totals" AFTER INSERT OR DELETE OR UPDATE OF "ownerId", "visibility", "archivedAt"
  ON "Space" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "keepTotals"();

-- At once: by what the space and the agent are now.
CREATE TRIGGER "totals" AFTER INSERT OR DELETE
    OR UPDATE OF "userId", "visibility", "agentId", "agentOrganizationId", "spaceId", "archivedAt"
  ON "Mission" FOR EACH ROW EXECUTE FUNCTION "keepTotals"();

CREATE FUNCTION "keepMissionTotals"() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  PERFORM "lockMissionTotals"(OLD."organizationId");
  INSERT INTO "Total" AS kept
  SELECT t."organizationId", t."list", t."userId", t."value", sum(CASE TG_WHEN WHEN 'BEFORE' THEN -1 ELSE 1 END)
  FROM "Mission" it, "totalsOf"(it) t
  WHERE it."organizationId" = OLD."organizationId"
    AND (TG_TABLE_NAME = 'Space' AND it."spaceId" = OLD."id" OR TG_TABLE_NAME = 'Agent' AND it."agentId" = OLD."id")
  GROUP BY 1, 2, 3, 4
  ORDER BY 1, 2, 3, 4
  ON CONFLICT ("organizationId", "list", "userId", "value") DO UPDATE SET "count" = kept."count" + excluded."count";
  RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER "missions_before_update" BEFORE UPDATE OF "ownerId", "visibility" ON "Space" FOR EACH ROW
  WHEN ((OLD."ownerId", OLD."visibility") IS DISTINCT FROM (NEW."ownerId", NEW."visibility"))
  EXECUTE FUNCTION "keepMissionTotals"();
CREATE TRIGGER "missions_after_update" AFTER UPDATE OF "ownerId", "visibility" ON "Space" FOR EACH ROW
  WHEN ((OLD."ownerId", OLD."visibility") IS DISTINCT FROM (NEW."ownerId", NEW."visibility"))
  EXECUTE FUNCTION "keepMissionTotals"();
CREATE TRIGGER "missions_delete" BEFORE DELETE ON "Space" FOR EACH ROW EXECUTE FUNCTION "keepMissionTotals"();
CREATE TRIGGER "missions_before_update" BEFORE UPDATE OF "userId", "visibility" ON "Agent" FOR EACH ROW
  WHEN ((OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility"))
  EXECUTE FUNCTION "keepMissionTotals"();
CREATE TRIGGER "missions_after_update" AFTER UPDATE OF "userId", "visibility" ON "Agent" FOR EACH ROW
  WHEN ((OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility"))
  EXECUTE FUNCTION "keepMissionTotals"();

CREATE FUNCTION "deleteTotals"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM "Total" WHERE "organizationId" = OLD."id";
  RETURN NULL;
END $$;

CREATE TRIGGER "totals_delete" AFTER DELETE ON "Organization" FOR EACH ROW EXECUTE FUNCTION "deleteTotals"();

-- The rows that are there already: nobody changes any more until the triggers are there.
INSERT INTO "Total" SELECT t."organizationId", t."list", t."userId", t."value", count(*)
FROM (
  SELECT totals.* FROM "Agent" it, "totalsOf"(it) totals
  UNION ALL SELECT totals.* FROM "Skill" it, "totalsOf"(it) totals
  UNION ALL SELECT totals.* FROM "McpServer" it, "totalsOf"(it) totals
  UNION ALL SELECT totals.* FROM "Space" it, "totalsOf"(it) totals
  UNION ALL SELECT totals.* FROM "Mission" it, "totalsOf"(it) totals
) AS t GROUP BY 1, 2, 3, 4;

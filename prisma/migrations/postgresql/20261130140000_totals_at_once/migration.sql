-- A statement that changed many missions changed the same totals once for each of them. PostgreSQL keeps each version of
-- a row until the transaction ends, and walks through all of them at the next change, so 50,000 missions took minutes.
-- Now a statement changes each total once. The functions read other rows by their keys alone (subqueries, OFFSET 0):
-- a session plans them once, and the first statement may change any number of rows.

-- The lists that count a mission, and the user to whom it counts ('' for all). The arguments are the users who alone see
-- the mission, its agent and its space, or null.
CREATE FUNCTION "listsOf"("ofMission" text, "ofAgent" text, "ofSpace" text)
RETURNS TABLE ("list" text, "userId" text) LANGUAGE sql IMMUTABLE AS $$
  SELECT lists."list", coalesce("ofMission", "ofAgent", lists."ofSpace", '')
  FROM (VALUES ('missions', "ofSpace"), ('missions for admins', NULL)) AS lists("list", "ofSpace")
  WHERE coalesce("ofAgent" = coalesce("ofMission", "ofAgent"), true)
    AND coalesce(lists."ofSpace" = coalesce("ofMission", "ofAgent", lists."ofSpace"), true)
$$;

CREATE OR REPLACE FUNCTION "totalsOf"(it "Mission") RETURNS SETOF "Total" LANGUAGE sql STABLE AS $$
  SELECT it."organizationId", counted."list", counted."userId", replace(it."status"::text, 'running', 'pending'), 1
  FROM "Space" space
  LEFT JOIN "Agent" agent ON agent."organizationId" = it."organizationId" AND agent."id" = it."agentId"
    AND agent."visibility" = 'private'
  CROSS JOIN LATERAL "listsOf"(
    CASE it."visibility" WHEN 'private' THEN it."userId" END,
    agent."userId",
    CASE space."visibility" WHEN 'private' THEN space."ownerId" END
  ) AS counted
  WHERE space."organizationId" = it."organizationId" AND space."id" = it."spaceId" AND it."archivedAt" IS NULL
$$;

-- The user who alone sees an agent or a space of an organization, or null.
CREATE FUNCTION "onlyUserOfAgent"("of" text, "agent" text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT "userId" FROM "Agent" WHERE "organizationId" = "of" AND "id" = "agent" AND "visibility" = 'private'
$$;
CREATE FUNCTION "onlyUserOfSpace"("of" text, "space" text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT "ownerId" FROM "Space" WHERE "organizationId" = "of" AND "id" = "space" AND "visibility" = 'private'
$$;

-- Groups the missions of a statement by all that decides about their totals. A group that is as large as before is no
-- change: most updates end at the first query.
CREATE FUNCTION "recountMissions"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  "of" text;
BEGIN
  FOR "of" IN
    SELECT DISTINCT "organizationId"
    FROM (
      SELECT "organizationId" FROM (TABLE "before" UNION ALL TABLE "after") AS it
      GROUP BY "organizationId", "id", "userId", "visibility", "agentId", "spaceId", "archivedAt" IS NULL,
        replace("status"::text, 'running', 'pending')
      HAVING count(*) = 1
    ) AS moved
    ORDER BY 1
  LOOP
    PERFORM "lockMissionTotals"("of");
    INSERT INTO "Total" AS kept
    SELECT "of", counted."list", counted."userId", moved."value", sum(moved."count")
    FROM (
      SELECT "onlyUser", "agentId", "spaceId", "value", sum("count") AS "count"
      FROM (
        SELECT CASE "visibility" WHEN 'private' THEN "userId" END AS "onlyUser", "agentId", "spaceId",
          replace("status"::text, 'running', 'pending') AS "value", "count"
        FROM (SELECT *, 1 AS "count" FROM "after" UNION ALL SELECT *, -1 FROM "before") AS it
        WHERE "organizationId" = "of" AND "archivedAt" IS NULL
      ) AS it
      GROUP BY 1, 2, 3, 4 HAVING sum("count") <> 0
    ) AS moved
    CROSS JOIN LATERAL "listsOf"(
      moved."onlyUser", "onlyUserOfAgent"("of", moved."agentId"), "onlyUserOfSpace"("of", moved."spaceId")
    ) AS counted
    GROUP BY 1, 2, 3, 4 HAVING sum(moved."count") <> 0
    ORDER BY 1, 2, 3, 4
    ON CONFLICT ("organizationId", "list", "userId", "value") DO UPDATE SET "count" = kept."count" + excluded."count";

    CONTINUE WHEN NOT EXISTS (
      SELECT FROM (TABLE "before" UNION ALL TABLE "after") AS it
      WHERE "organizationId" = "of" GROUP BY "id", "userId", "visibility" HAVING count(*) = 1);
    PERFORM "lockCounts"("of");
    INSERT INTO "ChatCount" AS kept
    SELECT "of", chat."spaceId", chat."onlyUser", 0, sum(moved."count")
    FROM (
      SELECT "id", "onlyUser", sum("count") AS "count"
      FROM (
        SELECT "id", CASE "visibility" WHEN 'private' THEN "userId" END AS "onlyUser", "count"
        FROM (SELECT *, 1 AS "count" FROM "after" UNION ALL SELECT *, -1 FROM "before") AS it
        WHERE "organizationId" = "of"
      ) AS it
      GROUP BY 1, 2 HAVING sum("count") <> 0
    ) AS moved
    CROSS JOIN LATERAL (
      SELECT chat."spaceId", coalesce(agent."userId", moved."onlyUser", '') AS "onlyUser"
      FROM "Chat" chat
      LEFT JOIN "Agent" agent ON agent."organizationId" = chat."organizationId" AND agent."id" = chat."agentId"
        AND (agent."visibility" = 'private' OR chat."wasPrivate")
      WHERE chat."organizationId" = "of" AND chat."missionId" = moved."id" AND chat."archivedAt" IS NULL
        AND coalesce(agent."userId" = moved."onlyUser", true)
      OFFSET 0
    ) AS chat
    GROUP BY 1, 2, 3 HAVING sum(moved."count") <> 0
    ORDER BY 1, 2, 3
    ON CONFLICT ("organizationId", "spaceId", "userId", "part") DO UPDATE SET "count" = kept."count" + excluded."count";
  END LOOP;
  RETURN NULL;
END $$;

-- Counts the missions of a changed space as they were and as they are, or takes off those of a deleted one.
CREATE FUNCTION "recountSpace"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  "was" text := CASE OLD."visibility" WHEN 'private' THEN OLD."ownerId" END;
  "is" text;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    "is" := CASE NEW."visibility" WHEN 'private' THEN NEW."ownerId" END;
    IF "was" IS NOT DISTINCT FROM "is" THEN RETURN NULL; END IF;
  END IF;
  PERFORM "lockMissionTotals"(OLD."organizationId");
  INSERT INTO "Total" AS kept
  SELECT OLD."organizationId", counted."list", counted."userId", moved."value", sum(moved."count" * seen."sign")
  FROM (
    SELECT CASE "visibility" WHEN 'private' THEN "userId" END AS "onlyUser", "agentId",
      replace("status"::text, 'running', 'pending') AS "value", count(*) AS "count"
    FROM "Mission"
    WHERE "organizationId" = OLD."organizationId" AND "spaceId" = OLD."id" AND "archivedAt" IS NULL
    GROUP BY 1, 2, 3
  ) AS moved
  CROSS JOIN (VALUES ("was", -1), ("is", 1)) AS seen("ofSpace", "sign")
  CROSS JOIN LATERAL "listsOf"(
    moved."onlyUser", "onlyUserOfAgent"(OLD."organizationId", moved."agentId"), seen."ofSpace"
  ) AS counted
  WHERE seen."sign" < 0 OR TG_OP = 'UPDATE'
  GROUP BY 1, 2, 3, 4 HAVING sum(moved."count" * seen."sign") <> 0
  ORDER BY 1, 2, 3, 4
  ON CONFLICT ("organizationId", "list", "userId", "value") DO UPDATE SET "count" = kept."count" + excluded."count";
  RETURN CASE TG_OP WHEN 'DELETE' THEN OLD END;
END $$;

-- Counts the chats and the missions of a changed agent as they were and as they are.
CREATE FUNCTION "recountAgent"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  "was" text := CASE OLD."visibility" WHEN 'private' THEN OLD."userId" END;
  "is" text := CASE NEW."visibility" WHEN 'private' THEN NEW."userId" END;
BEGIN
  PERFORM "lockCounts"(OLD."organizationId");
  INSERT INTO "ChatCount" AS kept
  SELECT OLD."organizationId", chat."spaceId", coalesce(seen."ofAgent", chat."ofMission", ''), 0,
    sum(chat."count" * seen."sign")
  FROM (
    SELECT "spaceId", "wasPrivate", "ofMission", count(*) AS "count"
    FROM (
      SELECT "spaceId", "wasPrivate", (
        SELECT "userId" FROM "Mission" WHERE "organizationId" = chat."organizationId" AND "id" = chat."missionId"
          AND "visibility" = 'private'
      ) AS "ofMission"
      FROM "Chat" chat
      WHERE "organizationId" = OLD."organizationId" AND "agentId" = OLD."id" AND "archivedAt" IS NULL
    ) AS chat
    GROUP BY 1, 2, 3
  ) AS chat
  CROSS JOIN LATERAL (VALUES
    (CASE WHEN chat."wasPrivate" THEN OLD."userId" ELSE "was" END, -1),
    (CASE WHEN chat."wasPrivate" THEN NEW."userId" ELSE "is" END, 1)
  ) AS seen("ofAgent", "sign")
  WHERE coalesce(seen."ofAgent" = chat."ofMission", true)
  GROUP BY 1, 2, 3 HAVING sum(chat."count" * seen."sign") <> 0
  ORDER BY 1, 2, 3
  ON CONFLICT ("organizationId", "spaceId", "userId", "part") DO UPDATE SET "count" = kept."count" + excluded."count";

  IF "was" IS NOT DISTINCT FROM "is" THEN RETURN NULL; END IF;
  INSERT INTO "Total" AS kept
  SELECT OLD."organizationId", counted."list", counted."userId", moved."value", sum(moved."count" * seen."sign")
  FROM (
    SELECT CASE "visibility" WHEN 'private' THEN "userId" END AS "onlyUser", "spaceId",
      replace("status"::text, 'running', 'pending') AS "value", count(*) AS "count"
    FROM "Mission"
    WHERE "organizationId" = OLD."organizationId" AND "agentId" = OLD."id" AND "archivedAt" IS NULL
    GROUP BY 1, 2, 3
  ) AS moved
  CROSS JOIN (VALUES ("was", -1), ("is", 1)) AS seen("ofAgent", "sign")
  CROSS JOIN LATERAL "listsOf"(
    moved."onlyUser", seen."ofAgent", "onlyUserOfSpace"(OLD."organizationId", moved."spaceId")
  ) AS counted
  GROUP BY 1, 2, 3, 4 HAVING sum(moved."count" * seen."sign") <> 0
  ORDER BY 1, 2, 3, 4
  ON CONFLICT ("organizationId", "list", "userId", "value") DO UPDATE SET "count" = kept."count" + excluded."count";
  RETURN NULL;
END $$;

DROP TRIGGER "totals_update" ON "Mission";
DROP TRIGGER "chats_before_update" ON "Mission";
DROP TRIGGER "chats_after_update" ON "Mission";
CREATE TRIGGER "totals_update" AFTER UPDATE ON "Mission" REFERENCING OLD TABLE AS "before" NEW TABLE AS "after"
FOR EACH STATEMENT EXECUTE FUNCTION "recountMissions"();

DROP TRIGGER "missions_before_update" ON "Space";
DROP TRIGGER "missions_after_update" ON "Space";
DROP TRIGGER "missions_delete" ON "Space";
CREATE TRIGGER "missions_update" AFTER UPDATE OF "ownerId", "visibility" ON "Space" FOR EACH ROW
WHEN (OLD."ownerId" IS DISTINCT FROM NEW."ownerId" OR OLD."visibility" IS DISTINCT FROM NEW."visibility")
EXECUTE FUNCTION "recountSpace"();
CREATE TRIGGER "missions_delete" BEFORE DELETE ON "Space" FOR EACH ROW EXECUTE FUNCTION "recountSpace"();

DROP TRIGGER "missions_before_update" ON "Agent";
DROP TRIGGER "missions_after_update" ON "Agent";
DROP TRIGGER "chats_before_update" ON "Agent";
DROP TRIGGER "chats_after_update" ON "Agent";
CREATE TRIGGER "counts_update" AFTER UPDATE OF "userId", "visibility" ON "Agent" FOR EACH ROW
WHEN (OLD."userId" IS DISTINCT FROM NEW."userId" OR OLD."visibility" IS DISTINCT FROM NEW."visibility")
EXECUTE FUNCTION "recountAgent"();

DROP FUNCTION "recountChats"();
DROP FUNCTION "keepMissionTotals"();

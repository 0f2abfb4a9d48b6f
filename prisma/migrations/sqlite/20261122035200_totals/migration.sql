-- CreateTable
CREATE TABLE "Total" (
    "organizationId" TEXT NOT NULL,
    "list" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "value" TEXT NOT NULL,
    "count" INTEGER NOT NULL,

    PRIMARY KEY ("organizationId", "list", "userId", "value")
);

-- A view for each table: the totals that a row counts in. Triggers take the row out of them before it changes, and put
-- it in afterwards. (SQLite drops a table's triggers with it: a migration that rebuilds one of these makes them again.)

CREATE VIEW "AgentTotal" AS
WITH "live" AS (SELECT * FROM "Agent" WHERE "archivedAt" IS NULL),
  "shared" AS (SELECT * FROM "live" WHERE "visibility" IN ('organization', 'public'))
SELECT "id", "organizationId", 'agents' AS "list", '' AS "userId", "visibility" AS "value" FROM "shared"
UNION ALL SELECT "id", "organizationId", 'agents', "userId", "visibility" FROM "live"
UNION ALL SELECT "id", '', 'agents', '', "visibility" FROM "shared" WHERE "visibility" = 'public'
UNION ALL SELECT "shared"."id", "organizationId", 'tagged agents', '', "visibility" || ' ' || "tag"."value"
  FROM "shared" CROSS JOIN json_each("tags") AS "tag"
UNION ALL SELECT "shared"."id", '', 'tagged agents', '', "visibility" || ' ' || "tag"."value"
  FROM "shared" CROSS JOIN json_each("tags") AS "tag" WHERE "visibility" = 'public';

CREATE VIEW "SkillTotal" AS
SELECT "id", CASE "visibility" WHEN 'public' THEN '' ELSE "organizationId" END AS "organizationId", 'skills' AS "list",
  CASE "visibility" WHEN 'private' THEN "ownerId" ELSE '' END AS "userId", '' AS "value" FROM "Skill";

CREATE VIEW "McpServerTotal" AS
SELECT "id", "organizationId", 'mcps' AS "list", '' AS "userId", '' AS "value" FROM "McpServer";

CREATE VIEW "SpaceTotal" AS
WITH "live" AS (SELECT * FROM "Space" WHERE "archivedAt" IS NULL)
SELECT "id", "organizationId", 'spaces' AS "list",
  CASE "visibility" WHEN 'private' THEN "ownerId" ELSE '' END AS "userId", '' AS "value" FROM "live"
UNION ALL SELECT "id", "organizationId", 'spaces for admins', '', '' FROM "live";

-- Who alone may see a mission: the owner of what is private of it, its agent and its space. Nobody, where these differ.
CREATE VIEW "MissionTotal" AS
WITH "seen" AS (
  SELECT m."id", m."organizationId", m."agentId", m."spaceId",
    CASE m."visibility" WHEN 'private' THEN m."userId" END AS "ofMission",
    CASE a."visibility" WHEN 'private' THEN a."userId" END AS "ofAgent",
    CASE s."visibility" WHEN 'private' THEN s."ownerId" END AS "ofSpace"
  FROM "Mission" m
  CROSS JOIN "Space" s ON s."organizationId" = m."organizationId" AND s."id" = m."spaceId"
  LEFT JOIN "Agent" a ON a."organizationId" = m."organizationId" AND a."id" = m."agentId"
  WHERE m."archivedAt" IS NULL
)
SELECT "id", "organizationId", "agentId", "spaceId", 'missions' AS "list",
  coalesce("ofMission", "ofAgent", "ofSpace", '') AS "userId", '' AS "value" FROM "seen"
WHERE coalesce("ofAgent" = coalesce("ofMission", "ofAgent"), true)
  AND coalesce("ofSpace" = coalesce("ofMission", "ofAgent", "ofSpace"), true)
UNION ALL SELECT "id", "organizationId", "agentId", "spaceId", 'missions for admins',
  coalesce("ofMission", "ofAgent", ''), '' FROM "seen"
WHERE coalesce("ofAgent" = coalesce("ofMission", "ofAgent"), true);

CREATE TRIGGER "Agent_totals_insert" AFTER INSERT ON "Agent" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "AgentTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Agent_totals_before_update" BEFORE UPDATE OF "userId", "visibility", "archivedAt", "tags" ON "Agent"
WHEN (OLD."userId", OLD."visibility", OLD."archivedAt", OLD."tags")
  IS DISTINCT FROM (NEW."userId", NEW."visibility", NEW."archivedAt", NEW."tags") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "AgentTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Agent_totals_after_update" AFTER UPDATE OF "userId", "visibility", "archivedAt", "tags" ON "Agent"
WHEN (OLD."userId", OLD."visibility", OLD."archivedAt", OLD."tags")
  IS DISTINCT FROM (NEW."userId", NEW."visibility", NEW."archivedAt", NEW."tags") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "AgentTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Agent_totals_delete" BEFORE DELETE ON "Agent" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "AgentTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Skill_totals_insert" AFTER INSERT ON "Skill" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "SkillTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Skill_totals_before_update" BEFORE UPDATE OF "ownerId", "visibility" ON "Skill"
WHEN (OLD."ownerId", OLD."visibility") IS DISTINCT FROM (NEW."ownerId", NEW."visibility") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "SkillTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Skill_totals_after_update" AFTER UPDATE OF "ownerId", "visibility" ON "Skill"
WHEN (OLD."ownerId", OLD."visibility") IS DISTINCT FROM (NEW."ownerId", NEW."visibility") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "SkillTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Skill_totals_delete" BEFORE DELETE ON "Skill" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "SkillTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "McpServer_totals_insert" AFTER INSERT ON "McpServer" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "McpServerTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "McpServer_totals_delete" BEFORE DELETE ON "McpServer" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "McpServerTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Space_totals_insert" AFTER INSERT ON "Space" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "SpaceTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Space_totals_before_update" BEFORE UPDATE OF "ownerId", "visibility", "archivedAt" ON "Space"
WHEN (OLD."ownerId", OLD."visibility", OLD."archivedAt")
  IS DISTINCT FROM (NEW."ownerId", NEW."visibility", NEW."archivedAt") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "SpaceTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Space_totals_after_update" AFTER UPDATE OF "ownerId", "visibility", "archivedAt" ON "Space"
WHEN (OLD."ownerId", OLD."visibility", OLD."archivedAt")
  IS DISTINCT FROM (NEW."ownerId", NEW."visibility", NEW."archivedAt") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "SpaceTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Space_totals_delete" BEFORE DELETE ON "Space" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "SpaceTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Mission_totals_insert" AFTER INSERT ON "Mission" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "MissionTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Mission_totals_before_update" BEFORE UPDATE
  OF "userId", "visibility", "agentId", "agentOrganizationId", "spaceId", "archivedAt" ON "Mission"
WHEN (OLD."userId", OLD."visibility", OLD."agentId", OLD."agentOrganizationId", OLD."spaceId", OLD."archivedAt")
  IS DISTINCT FROM (NEW."userId", NEW."visibility", NEW."agentId", NEW."agentOrganizationId", NEW."spaceId",
    NEW."archivedAt") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "MissionTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Mission_totals_after_update" AFTER UPDATE
  OF "userId", "visibility", "agentId", "agentOrganizationId", "spaceId", "archivedAt" ON "Mission"
WHEN (OLD."userId", OLD."visibility", OLD."agentId", OLD."agentOrganizationId", OLD."spaceId", OLD."archivedAt")
  IS DISTINCT FROM (NEW."userId", NEW."visibility", NEW."agentId", NEW."agentOrganizationId", NEW."spaceId",
    NEW."archivedAt") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", 1 FROM "MissionTotal" WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Mission_totals_delete" BEFORE DELETE ON "Mission" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -1 FROM "MissionTotal" WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

-- Where a mission counts depends on its space and its agent, too.

CREATE TRIGGER "Space_missions_before_update" BEFORE UPDATE OF "ownerId", "visibility" ON "Space"
WHEN (OLD."ownerId", OLD."visibility") IS DISTINCT FROM (NEW."ownerId", NEW."visibility") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -count(*) FROM "MissionTotal"
    WHERE "organizationId" = OLD."organizationId" AND "spaceId" = OLD."id" GROUP BY 1, 2, 3, 4
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Space_missions_after_update" AFTER UPDATE OF "ownerId", "visibility" ON "Space"
WHEN (OLD."ownerId", OLD."visibility") IS DISTINCT FROM (NEW."ownerId", NEW."visibility") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", count(*) FROM "MissionTotal"
    WHERE "organizationId" = NEW."organizationId" AND "spaceId" = NEW."id" GROUP BY 1, 2, 3, 4
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Agent_missions_before_update" BEFORE UPDATE OF "userId", "visibility" ON "Agent"
WHEN (OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -count(*) FROM "MissionTotal"
    WHERE "organizationId" = OLD."organizationId" AND "agentId" = OLD."id" GROUP BY 1, 2, 3, 4
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Agent_missions_after_update" AFTER UPDATE OF "userId", "visibility" ON "Agent"
WHEN (OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility") BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", count(*) FROM "MissionTotal"
    WHERE "organizationId" = NEW."organizationId" AND "agentId" = NEW."id" GROUP BY 1, 2, 3, 4
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Space_missions_delete" BEFORE DELETE ON "Space" BEGIN
  INSERT INTO "Total" SELECT "organizationId", "list", "userId", "value", -count(*) FROM "MissionTotal"
    WHERE "organizationId" = OLD."organizationId" AND "spaceId" = OLD."id" GROUP BY 1, 2, 3, 4
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Organization_totals_delete" AFTER DELETE ON "Organization" BEGIN
  DELETE FROM "Total" WHERE "organizationId" = OLD."id";
END;

-- The rows that are there already.
INSERT INTO "Total"
SELECT "organizationId", "list", "userId", "value", count(*) FROM "AgentTotal" GROUP BY 1, 2, 3, 4
UNION ALL SELECT "organizationId", "list", "userId", "value", count(*) FROM "SkillTotal" GROUP BY 1, 2, 3, 4
UNION ALL SELECT "organizationId", "list", "userId", "value", count(*) FROM "McpServerTotal" GROUP BY 1, 2, 3, 4
UNION ALL SELECT "organizationId", "list", "userId", "value", count(*) FROM "SpaceTotal" GROUP BY 1, 2, 3, 4
UNION ALL SELECT "organizationId", "list", "userId", "value", count(*) FROM "MissionTotal" GROUP BY 1, 2, 3, 4;

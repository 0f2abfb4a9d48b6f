-- CreateTable
CREATE TABLE "ChatCount" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "part" INTEGER NOT NULL,
    "count" INTEGER NOT NULL,

    PRIMARY KEY ("organizationId", "spaceId", "userId", "part"),
    CONSTRAINT "ChatCount_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- Who alone may see a chat: the owner of what is private of it, its agent and its mission. Nobody, where these differ.
CREATE VIEW "CountedChat" AS
SELECT chat."id", chat."organizationId", chat."spaceId", chat."agentId", chat."missionId",
  coalesce(agent."userId", mission."userId", '') AS "userId"
FROM "Chat" chat
LEFT JOIN "Agent" agent ON agent."organizationId" = chat."organizationId" AND agent."id" = chat."agentId"
  AND agent."visibility" = 'private'
LEFT JOIN "Mission" mission ON mission."organizationId" = chat."organizationId" AND mission."id" = chat."missionId"
  AND mission."visibility" = 'private'
WHERE chat."archivedAt" IS NULL AND coalesce(agent."userId" = mission."userId", true);

CREATE TRIGGER "Chat_counts_insert" AFTER INSERT ON "Chat" BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, 1 FROM "CountedChat"
    WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Chat_counts_before_update" BEFORE UPDATE OF "spaceId", "agentId", "missionId", "archivedAt" ON "Chat"
WHEN (OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt")
  IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, -1 FROM "CountedChat"
    WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Chat_counts_after_update" AFTER UPDATE OF "spaceId", "agentId", "missionId", "archivedAt" ON "Chat"
WHEN (OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt")
  IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, 1 FROM "CountedChat"
    WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Chat_counts_delete" BEFORE DELETE ON "Chat" BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, -1 FROM "CountedChat"
    WHERE "id" = OLD."id"
      AND EXISTS (SELECT 1 FROM "Space" WHERE "id" = OLD."spaceId")
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

-- Who may see a chat depends on its agent and its mission, too.

CREATE TRIGGER "Agent_chats_before_update" BEFORE UPDATE OF "userId", "visibility" ON "Agent"
WHEN (OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, -count(*) FROM "CountedChat"
    WHERE "organizationId" = OLD."organizationId" AND "agentId" = OLD."id" GROUP BY 1, 2, 3
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Agent_chats_after_update" AFTER UPDATE OF "userId", "visibility" ON "Agent"
WHEN (OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, count(*) FROM "CountedChat"
    WHERE "organizationId" = NEW."organizationId" AND "agentId" = NEW."id" GROUP BY 1, 2, 3
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Mission_chats_before_update" BEFORE UPDATE OF "userId", "visibility" ON "Mission"
WHEN (OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, -count(*) FROM "CountedChat"
    WHERE "organizationId" = OLD."organizationId" AND "missionId" = OLD."id" GROUP BY 1, 2, 3
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Mission_chats_after_update" AFTER UPDATE OF "userId", "visibility" ON "Mission"
WHEN (OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, count(*) FROM "CountedChat"
    WHERE "organizationId" = NEW."organizationId" AND "missionId" = NEW."id" GROUP BY 1, 2, 3
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

-- The chats that are there already.
INSERT INTO "ChatCount"
SELECT "organizationId", "spaceId", "userId", 0, count(*) FROM "CountedChat" GROUP BY 1, 2, 3;

-- CreateTable
CREATE TABLE "ChatCount" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "part" INTEGER NOT NULL,
    "count" INTEGER NOT NULL,

    CONSTRAINT "ChatCount_pkey" PRIMARY KEY ("organizationId","spaceId","userId","part")
);

-- AddForeignKey
ALTER TABLE "ChatCount" ADD CONSTRAINT "ChatCount_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- Who alone may see a chat: the owner of what is private of it, its agent and its mission. Nobody, where these differ.
CREATE FUNCTION "countedChats"()
RETURNS TABLE("id" text, "organizationId" text, "spaceId" text, "agentId" text, "missionId" text, "userId" text)
LANGUAGE sql STABLE AS $$
  SELECT chat."id", chat."organizationId", chat."spaceId", chat."agentId", chat."missionId",
    coalesce(agent."userId", mission."userId", '') AS "userId"
  FROM "Chat" chat
  LEFT JOIN "Agent" agent ON agent."organizationId" = chat."organizationId" AND agent."id" = chat."agentId"
    AND agent."visibility" = 'private'
  LEFT JOIN "Mission" mission ON mission."organizationId" = chat."organizationId" AND mission."id" = chat."missionId"
    AND mission."visibility" = 'private'
  WHERE chat."archivedAt" IS NULL AND coalesce(agent."userId" = mission."userId", true)
$$;

-- Where a chat counts depends on its agent and its mission, which somebody else may be changing just now: of an
-- organization many write chats at once, or one changes what hides them. Who writes a chat counts it in whichever part
-- nobody else is counting in until they commit, or else in one of their own.
CREATE FUNCTION "keepChatCounts"() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  it "Chat" := CASE WHEN TG_WHEN = 'BEFORE' THEN OLD ELSE NEW END;
  more int := CASE WHEN TG_WHEN = 'BEFORE' THEN -1 ELSE 1 END;
BEGIN
  -- The counts of a space that is deleted go with it.
  IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM "Space" WHERE "id" = it."spaceId") THEN RETURN OLD; END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('chats ' || it."organizationId", 0));
  -- MATERIALIZED: looked for once, or each part that is free would be counted in.
  WITH free AS MATERIALIZED (
    SELECT part.* FROM "countedChats"() AS chat JOIN "ChatCount" AS part ON part."organizationId" = chat."organizationId"
      AND part."spaceId" = chat."spaceId" AND part."userId" = chat."userId"
    WHERE chat."id" = it."id" LIMIT 1 FOR UPDATE OF part SKIP LOCKED
  )
  UPDATE "ChatCount" AS kept SET "count" = kept."count" + more FROM free
  WHERE kept."organizationId" = free."organizationId" AND kept."spaceId" = free."spaceId"
    AND kept."userId" = free."userId" AND kept."part" = free."part";
  IF NOT FOUND THEN
    INSERT INTO "ChatCount" AS kept
    SELECT "organizationId", "spaceId", "userId", pg_backend_pid(), more FROM "countedChats"()
    WHERE "id" = it."id"
    ON CONFLICT ("organizationId", "spaceId", "userId", "part") DO UPDATE SET "count" = kept."count" + excluded."count";
  END IF;
  RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER "counts_insert" AFTER INSERT ON "Chat" FOR EACH ROW EXECUTE FUNCTION "keepChatCounts"();
CREATE TRIGGER "counts_before_update" BEFORE UPDATE OF "spaceId", "agentId", "missionId", "archivedAt" ON "Chat"
  FOR EACH ROW WHEN ((OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt")
    IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt"))
  EXECUTE FUNCTION "keepChatCounts"();
CREATE TRIGGER "counts_after_update" AFTER UPDATE OF "spaceId", "agentId", "missionId", "archivedAt" ON "Chat"
  FOR EACH ROW WHEN ((OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt")
    IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt"))
  EXECUTE FUNCTION "keepChatCounts"();
CREATE TRIGGER "counts_delete" BEFORE DELETE ON "Chat" FOR EACH ROW EXECUTE FUNCTION "keepChatCounts"();

-- Nobody else counts meanwhile. Whoever needs both locks takes that of missions first, as one of whose triggers comes
-- after. Whoever changes a mission takes them before its row, which a run that has written its chat wants next.
CREATE FUNCTION "lockCounts"("of" text) RETURNS void LANGUAGE sql AS $$
  SELECT "lockMissionTotals"("of");
  SELECT pg_advisory_xact_lock(hashtextextended('chats ' || "of", 0))
$$;

CREATE FUNCTION "recountChats"() RETURNS trigger LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
BEGIN
  PERFORM "lockCounts"(OLD."organizationId");
  INSERT INTO "ChatCount" AS kept
  SELECT "organizationId", "spaceId", "userId", 0,
    count(*) * CASE TG_WHEN WHEN 'BEFORE' THEN -1 ELSE 1 END
  FROM "countedChats"()
  WHERE "organizationId" = OLD."organizationId"
    AND (TG_TABLE_NAME = 'Agent' AND "agentId" = OLD."id" OR TG_TABLE_NAME = 'Mission' AND "missionId" = OLD."id")
  GROUP BY 1, 2, 3
  ORDER BY 1, 2, 3
  ON CONFLICT ("organizationId", "spaceId", "userId", "part") DO UPDATE SET "count" = kept."count" + excluded."count";
  RETURN NEW;
END $$;

CREATE TRIGGER "chats_before_update" BEFORE UPDATE OF "userId", "visibility" ON "Agent" FOR EACH ROW
  WHEN ((OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility"))
  EXECUTE FUNCTION "recountChats"();
CREATE TRIGGER "chats_after_update" AFTER UPDATE OF "userId", "visibility" ON "Agent" FOR EACH ROW
  WHEN ((OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility"))
  EXECUTE FUNCTION "recountChats"();
CREATE TRIGGER "chats_before_update" BEFORE UPDATE OF "userId", "visibility" ON "Mission" FOR EACH ROW
  WHEN ((OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility"))
  EXECUTE FUNCTION "recountChats"();
CREATE TRIGGER "chats_after_update" AFTER UPDATE OF "userId", "visibility" ON "Mission" FOR EACH ROW
  WHEN ((OLD."userId", OLD."visibility") IS DISTINCT FROM (NEW."userId", NEW."visibility"))
  EXECUTE FUNCTION "recountChats"();

-- The chats that are there already.
INSERT INTO "ChatCount"
SELECT "organizationId", "spaceId", "userId", 0, count(*) FROM "countedChats"() GROUP BY 1, 2, 3;

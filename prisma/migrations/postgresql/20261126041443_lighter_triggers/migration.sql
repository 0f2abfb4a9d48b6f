-- Each run executes these triggers: the event is inserted without a call of "writeEvent", whose statement is the same.
CREATE OR REPLACE FUNCTION "announceExecution"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO "OrganizationEvent" ("organizationId", "position", "sequence", "type", "subjectId", "at")
  VALUES (NEW."organizationId",
    coalesce((SELECT "eventBase" FROM "Installation" WHERE "id" = 1), 0) + pg_current_xact_id()::text::bigint,
    nextval('"OrganizationEvent_sequence_seq"'),
    'execution.' || CASE TG_ARGV[0] WHEN 'ended' THEN NEW."status"::text ELSE TG_ARGV[0] END, NEW."id",
    CASE TG_ARGV[0] WHEN 'started' THEN NEW."startedAt" WHEN 'waiting' THEN NEW."waitingSince"
      ELSE NEW."completedAt" END);
  RETURN NULL;
END $$;

-- Counts a new chat as "countedChats" has it, without reading the chat. As in "keepChatCounts", it is counted in a part in
-- which no open transaction counts, or else in one of this session. The part is found by its key: a row that another
-- transaction has just changed has another ctid.
CREATE FUNCTION "countNewChat"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  "onlyUser" text;
  "ofMission" text;
BEGIN
  IF NEW."archivedAt" IS NOT NULL THEN RETURN NULL; END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('chats ' || NEW."organizationId", 0));
  IF NEW."agentId" IS NOT NULL THEN
    SELECT "userId" INTO "onlyUser" FROM "Agent" WHERE "organizationId" = NEW."organizationId" AND "id" = NEW."agentId"
      AND ("visibility" = 'private' OR NEW."wasPrivate");
  END IF;
  IF NEW."missionId" IS NOT NULL THEN
    SELECT "userId" INTO "ofMission" FROM "Mission" WHERE "organizationId" = NEW."organizationId"
      AND "id" = NEW."missionId" AND "visibility" = 'private';
    IF "onlyUser" <> "ofMission" THEN RETURN NULL; END IF;
  END IF;
  "onlyUser" := coalesce("onlyUser", "ofMission", '');
  UPDATE "ChatCount" SET "count" = "count" + 1
  WHERE "organizationId" = NEW."organizationId" AND "spaceId" = NEW."spaceId" AND "userId" = "onlyUser" AND "part" = (
    SELECT "part" FROM "ChatCount"
    WHERE "organizationId" = NEW."organizationId" AND "spaceId" = NEW."spaceId" AND "userId" = "onlyUser"
    LIMIT 1 FOR UPDATE SKIP LOCKED);
  IF NOT FOUND THEN
    INSERT INTO "ChatCount" AS kept VALUES (NEW."organizationId", NEW."spaceId", "onlyUser", pg_backend_pid(), 1)
    ON CONFLICT ("organizationId", "spaceId", "userId", "part") DO UPDATE SET "count" = kept."count" + 1;
  END IF;
  RETURN NULL;
END $$;

DROP TRIGGER "counts_insert" ON "Chat";
CREATE TRIGGER "counts_insert" AFTER INSERT ON "Chat" FOR EACH ROW EXECUTE FUNCTION "countNewChat"();

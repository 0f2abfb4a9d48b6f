-- Each run executes these triggers. They insert the event without "NewEvent", whose trigger is called in turn. A statement
-- that does not select from the table it inserts into needs no temporary table.
DROP TRIGGER "NewEvent_insert";
CREATE TRIGGER "NewEvent_insert" INSTEAD OF INSERT ON "NewEvent" BEGIN
  INSERT INTO "OrganizationEvent"
    ("organizationId", "position", "sequence", "type", "subjectId", "data", "at")
  VALUES (
    NEW."organizationId",
    coalesce((SELECT "position" FROM "OrganizationEvent" WHERE "organizationId" = NEW."organizationId"
      ORDER BY "position" DESC LIMIT 1), 0) + 1,
    coalesce((SELECT "position" FROM "OrganizationEvent" WHERE "organizationId" = NEW."organizationId"
      ORDER BY "position" DESC LIMIT 1), 0) + 1,
    NEW."type", NEW."subjectId", NEW."data", NEW."at");
END;

DROP TRIGGER "Execution_event_insert";
CREATE TRIGGER "Execution_event_insert" AFTER INSERT ON "Execution" WHEN NEW."startedAt" IS NOT NULL BEGIN
  INSERT INTO "OrganizationEvent" ("organizationId", "position", "sequence", "type", "subjectId", "at")
  VALUES (
    NEW."organizationId",
    coalesce((SELECT "position" FROM "OrganizationEvent" WHERE "organizationId" = NEW."organizationId"
      ORDER BY "position" DESC LIMIT 1), 0) + 1,
    coalesce((SELECT "position" FROM "OrganizationEvent" WHERE "organizationId" = NEW."organizationId"
      ORDER BY "position" DESC LIMIT 1), 0) + 1,
    'execution.started', NEW."id", NEW."startedAt");
END;

-- The condition reads "status" instead of "terminalSeq": SQLite copies all old columns for a condition on a column beyond
-- the 32nd.
DROP TRIGGER "Execution_event_ended";
CREATE TRIGGER "Execution_event_ended" AFTER UPDATE OF "terminalSeq" ON "Execution"
WHEN OLD."status" IN ('pending', 'running') AND NEW."terminalSeq" IS NOT NULL BEGIN
  INSERT INTO "OrganizationEvent" ("organizationId", "position", "sequence", "type", "subjectId", "at")
  VALUES (
    NEW."organizationId",
    coalesce((SELECT "position" FROM "OrganizationEvent" WHERE "organizationId" = NEW."organizationId"
      ORDER BY "position" DESC LIMIT 1), 0) + 1,
    coalesce((SELECT "position" FROM "OrganizationEvent" WHERE "organizationId" = NEW."organizationId"
      ORDER BY "position" DESC LIMIT 1), 0) + 1,
    'execution.' || NEW."status", NEW."id", NEW."completedAt");
END;

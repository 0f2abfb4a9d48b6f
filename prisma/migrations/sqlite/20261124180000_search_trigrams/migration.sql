-- Agents by the trigrams of what is searched of them: what few of very many have is found without looking at the others.
-- The rows of such an index have whole numbers, which no other column of an agent is. (SQLite drops a table's triggers with
-- it: a migration that rebuilds "Agent" makes these again.)
CREATE TABLE "AgentTextKey" (
    "key" INTEGER NOT NULL PRIMARY KEY,
    "agentId" TEXT NOT NULL
);
CREATE UNIQUE INDEX "AgentTextKey_agentId_key" ON "AgentTextKey"("agentId");

CREATE VIRTUAL TABLE "AgentText"
  USING fts5("text", content = '', contentless_delete = 1, detail = none, tokenize = 'trigram case_sensitive 1');

CREATE TRIGGER "Agent_text_insert" AFTER INSERT ON "Agent" BEGIN
  INSERT INTO "AgentTextKey" ("agentId") VALUES (NEW."id");
  INSERT INTO "AgentText" ("rowid", "text")
    SELECT "key", NEW."searchText" FROM "AgentTextKey" WHERE "agentId" = NEW."id";
END;

CREATE TRIGGER "Agent_text_update" AFTER UPDATE OF "searchText" ON "Agent"
WHEN OLD."searchText" <> NEW."searchText" BEGIN
  UPDATE "AgentText" SET "text" = NEW."searchText"
    WHERE "rowid" = (SELECT "key" FROM "AgentTextKey" WHERE "agentId" = NEW."id");
END;

CREATE TRIGGER "Agent_text_delete" AFTER DELETE ON "Agent" BEGIN
  DELETE FROM "AgentText" WHERE "rowid" = (SELECT "key" FROM "AgentTextKey" WHERE "agentId" = OLD."id");
  DELETE FROM "AgentTextKey" WHERE "agentId" = OLD."id";
END;

-- The rows that are there already.
INSERT INTO "AgentTextKey" ("agentId") SELECT "id" FROM "Agent";
INSERT INTO "AgentText" ("rowid", "text")
  SELECT k."key", a."searchText" FROM "AgentTextKey" k CROSS JOIN "Agent" a ON a."id" = k."agentId";

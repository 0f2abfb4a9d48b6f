-- AlterTable
ALTER TABLE "Organization" ADD COLUMN "foreignAgents" TEXT NOT NULL DEFAULT 'read';
ALTER TABLE "Organization" ADD COLUMN "builtInTools" JSONB NOT NULL DEFAULT '[]';
ALTER TABLE "Organization" ADD COLUMN "attachments" TEXT NOT NULL DEFAULT 'pinned';
ALTER TABLE "Space" ADD COLUMN "permissions" JSONB NOT NULL DEFAULT '[]';
ALTER TABLE "Agent" ADD COLUMN "permissions" JSONB NOT NULL DEFAULT '[]';
ALTER TABLE "Agent" ADD COLUMN "skillRefs" JSONB NOT NULL DEFAULT '[]';
ALTER TABLE "AgentVersion" ADD COLUMN "visibility" TEXT NOT NULL DEFAULT 'organization';
ALTER TABLE "Chat" ADD COLUMN "wasPrivate" BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE "Session" ADD COLUMN "wasPrivate" BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE "Execution" ADD COLUMN "wasPrivate" BOOLEAN NOT NULL DEFAULT false;

-- AlterTable
ALTER TABLE "SpaceSkill" ADD COLUMN "version" INTEGER;

-- CreateTable
CREATE TABLE "SkillVersion" (
    "organizationId" TEXT NOT NULL,
    "skillId" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "userId" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "name" TEXT NOT NULL,
    "displayName" TEXT NOT NULL,
    "description" TEXT NOT NULL,
    "prompt" TEXT NOT NULL,
    "category" TEXT NOT NULL,
    "builtInTools" JSONB NOT NULL,
    "requiredMCPs" JSONB NOT NULL,

    PRIMARY KEY ("skillId", "version"),
    CONSTRAINT "SkillVersion_organizationId_skillId_fkey" FOREIGN KEY ("organizationId", "skillId") REFERENCES "Skill" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- The versions of skills that are there: of each the newest. What is attached stays at the version that it has now.
INSERT INTO "SkillVersion" ("organizationId", "skillId", "version", "userId", "createdAt", "name", "displayName",
    "description", "prompt", "category", "builtInTools", "requiredMCPs")
  SELECT "organizationId", "id", "version", "ownerId", "updatedAt", "name", "displayName",
    "description", "prompt", "category", "builtInTools", "requiredMCPs" FROM "Skill";
UPDATE "SpaceSkill" SET "version" = (SELECT s."version" FROM "Skill" s WHERE s."id" = "SpaceSkill"."skillId");
UPDATE "Agent" SET "skillRefs" = (
  SELECT json_group_array(json_object('skillId', j."value", 'version', coalesce(s."version", 1)))
  FROM json_each("Agent"."skillIds") j LEFT JOIN "Skill" s ON s."id" = j."value") WHERE "skillIds" <> '[]';
UPDATE "AgentVersion" SET "visibility" = coalesce(json_extract("agent", '$.visibility'), 'organization');

-- A chat in which its agent spoke while it was private counts as one of a private agent.
DROP TRIGGER "Chat_counts_before_update";
DROP TRIGGER "Chat_counts_after_update";
DROP VIEW "CountedChat";
CREATE VIEW "CountedChat" AS
SELECT chat."id", chat."organizationId", chat."spaceId", chat."agentId", chat."missionId",
  coalesce(agent."userId", mission."userId", '') AS "userId"
FROM "Chat" chat
LEFT JOIN "Agent" agent ON agent."organizationId" = chat."organizationId" AND agent."id" = chat."agentId"
  AND (agent."visibility" = 'private' OR chat."wasPrivate" = true)
LEFT JOIN "Mission" mission ON mission."organizationId" = chat."organizationId" AND mission."id" = chat."missionId"
  AND mission."visibility" = 'private'
WHERE chat."archivedAt" IS NULL AND coalesce(agent."userId" = mission."userId", true);

CREATE TRIGGER "Chat_counts_before_update"
BEFORE UPDATE OF "spaceId", "agentId", "missionId", "archivedAt", "wasPrivate" ON "Chat"
WHEN (OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt", OLD."wasPrivate")
  IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt", NEW."wasPrivate") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, -1 FROM "CountedChat"
    WHERE "id" = OLD."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

CREATE TRIGGER "Chat_counts_after_update"
AFTER UPDATE OF "spaceId", "agentId", "missionId", "archivedAt", "wasPrivate" ON "Chat"
WHEN (OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt", OLD."wasPrivate")
  IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt", NEW."wasPrivate") BEGIN
  INSERT INTO "ChatCount" SELECT "organizationId", "spaceId", "userId", 0, 1 FROM "CountedChat"
    WHERE "id" = NEW."id"
    ON CONFLICT DO UPDATE SET "count" = "count" + excluded."count";
END;

-- What was said while an agent was private stays its owner's.
UPDATE "Execution" SET "wasPrivate" = true WHERE EXISTS (
  SELECT 1 FROM "AgentVersion" v WHERE v."agentId" = "Execution"."agentId" AND v."version" = "Execution"."agentVersion"
    AND v."visibility" = 'private');
UPDATE "Session" SET "wasPrivate" = true WHERE "id" IN (SELECT "sessionId" FROM "Execution" WHERE "wasPrivate" = true);
UPDATE "Chat" SET "wasPrivate" = true WHERE EXISTS (
  SELECT 1 FROM "Execution" e WHERE e."organizationId" = "Chat"."organizationId" AND e."chatId" = "Chat"."id"
    AND e."agentId" = "Chat"."agentId" AND e."wasPrivate" = true);

-- Few runs are of private agents: what counts the others looks for these.
CREATE INDEX "Execution_wasPrivate_idx" ON "Execution"("organizationId", "agentId") WHERE "wasPrivate" = true;
CREATE INDEX "Chat_wasPrivate_idx" ON "Chat"("organizationId", "agentId") WHERE "wasPrivate" = true;

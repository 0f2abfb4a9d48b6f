-- AlterTable
ALTER TABLE "Organization" ADD COLUMN     "attachments" TEXT NOT NULL DEFAULT 'pinned',
ADD COLUMN     "builtInTools" JSONB NOT NULL DEFAULT '[]',
ADD COLUMN     "foreignAgents" TEXT NOT NULL DEFAULT 'read';

-- AlterTable
ALTER TABLE "Space" ADD COLUMN     "permissions" JSONB NOT NULL DEFAULT '[]';

-- AlterTable
ALTER TABLE "Agent" ADD COLUMN     "permissions" JSONB NOT NULL DEFAULT '[]',
ADD COLUMN     "skillRefs" JSONB NOT NULL DEFAULT '[]';

-- AlterTable
ALTER TABLE "AgentVersion" ADD COLUMN     "visibility" "AgentVisibility" NOT NULL DEFAULT 'organization';

-- AlterTable
ALTER TABLE "Chat" ADD COLUMN     "wasPrivate" BOOLEAN NOT NULL DEFAULT false;

-- AlterTable
ALTER TABLE "Session" ADD COLUMN     "wasPrivate" BOOLEAN NOT NULL DEFAULT false;

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "wasPrivate" BOOLEAN NOT NULL DEFAULT false;

-- AlterTable
ALTER TABLE "SpaceSkill" ADD COLUMN     "version" INTEGER;

-- CreateTable
CREATE TABLE "SkillVersion" (
    "organizationId" TEXT NOT NULL,
    "skillId" TEXT NOT NULL,
    "version" INTEGER NOT NULL,
    "userId" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "name" TEXT NOT NULL,
    "displayName" TEXT NOT NULL,
    "description" TEXT NOT NULL,
    "prompt" TEXT NOT NULL,
    "category" TEXT NOT NULL,
    "builtInTools" JSONB NOT NULL,
    "requiredMCPs" JSONB NOT NULL,

    CONSTRAINT "SkillVersion_pkey" PRIMARY KEY ("skillId","version")
);

-- AddForeignKey
ALTER TABLE "SkillVersion" ADD CONSTRAINT "SkillVersion_organizationId_skillId_fkey" FOREIGN KEY ("organizationId", "skillId") REFERENCES "Skill"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- The versions of skills that are there: of each the newest. What is attached stays at the version that it has now.
INSERT INTO "SkillVersion" ("organizationId", "skillId", "version", "userId", "createdAt", "name", "displayName",
    "description", "prompt", "category", "builtInTools", "requiredMCPs")
  SELECT "organizationId", "id", "version", "ownerId", "updatedAt", "name", "displayName",
    "description", "prompt", "category", "builtInTools", "requiredMCPs" FROM "Skill";
UPDATE "SpaceSkill" SET "version" = (SELECT s."version" FROM "Skill" s WHERE s."id" = "SpaceSkill"."skillId");
UPDATE "Agent" SET "skillRefs" = (
  SELECT jsonb_agg(jsonb_build_object('skillId', j."value", 'version', coalesce(s."version", 1)) ORDER BY j."ordinality")
  FROM jsonb_array_elements_text("Agent"."skillIds") WITH ORDINALITY AS j("value", "ordinality")
  LEFT JOIN "Skill" s ON s."id" = j."value") WHERE "skillIds" <> '[]';
UPDATE "AgentVersion" SET "visibility" = coalesce("agent" ->> 'visibility', 'organization')::"AgentVisibility";

-- A chat in which its agent spoke while it was private counts as one of a private agent.
CREATE OR REPLACE FUNCTION "countedChats"()
RETURNS TABLE("id" text, "organizationId" text, "spaceId" text, "agentId" text, "missionId" text, "userId" text)
LANGUAGE sql STABLE AS $$
  SELECT chat."id", chat."organizationId", chat."spaceId", chat."agentId", chat."missionId",
    coalesce(agent."userId", mission."userId", '') AS "userId"
  FROM "Chat" chat
  LEFT JOIN "Agent" agent ON agent."organizationId" = chat."organizationId" AND agent."id" = chat."agentId"
    AND (agent."visibility" = 'private' OR chat."wasPrivate")
  LEFT JOIN "Mission" mission ON mission."organizationId" = chat."organizationId" AND mission."id" = chat."missionId"
    AND mission."visibility" = 'private'
  WHERE chat."archivedAt" IS NULL AND coalesce(agent."userId" = mission."userId", true)
$$;

DROP TRIGGER "counts_before_update" ON "Chat";
DROP TRIGGER "counts_after_update" ON "Chat";
CREATE TRIGGER "counts_before_update"
  BEFORE UPDATE OF "spaceId", "agentId", "missionId", "archivedAt", "wasPrivate" ON "Chat"
  FOR EACH ROW WHEN ((OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt", OLD."wasPrivate")
    IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt", NEW."wasPrivate"))
  EXECUTE FUNCTION "keepChatCounts"();
CREATE TRIGGER "counts_after_update"
  AFTER UPDATE OF "spaceId", "agentId", "missionId", "archivedAt", "wasPrivate" ON "Chat"
  FOR EACH ROW WHEN ((OLD."spaceId", OLD."agentId", OLD."missionId", OLD."archivedAt", OLD."wasPrivate")
    IS DISTINCT FROM (NEW."spaceId", NEW."agentId", NEW."missionId", NEW."archivedAt", NEW."wasPrivate"))
  EXECUTE FUNCTION "keepChatCounts"();

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

-- AlterTable
ALTER TABLE "Session" ADD COLUMN "messageCount" INTEGER NOT NULL DEFAULT 0;

-- Servers of the version before end runs without counting: stop all of them first.
-- What is there already: all of a session's messages, but for the question of the run that is on.
UPDATE "Session" SET "messageCount" =
  (SELECT count(*) FROM "Message" m WHERE m."sessionId" = "Session"."id")
  - (SELECT count(*) FROM "Execution" e WHERE e."id" = "Session"."activeExecutionId" AND e."attempt" > 0);

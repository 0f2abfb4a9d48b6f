-- Columns are added one by one: a rebuilt table would lose what hand-written migrations gave it.
DROP INDEX "Approval_executionId_step_position_key";

ALTER TABLE "Approval" ADD COLUMN "round" INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "Approval" ADD COLUMN "mcpId" TEXT;
ALTER TABLE "Approval" ADD COLUMN "mcpName" TEXT;
ALTER TABLE "Approval" ADD COLUMN "origin" TEXT;
ALTER TABLE "Approval" ADD COLUMN "description" TEXT;
ALTER TABLE "Approval" ADD COLUMN "inputSchema" TEXT;
ALTER TABLE "Approval" ADD COLUMN "digest" TEXT;
ALTER TABLE "Approval" ADD COLUMN "editedInput" TEXT;
ALTER TABLE "Approval" ADD COLUMN "editedBy" TEXT;

CREATE UNIQUE INDEX "Approval_executionId_step_position_round_key" ON "Approval"("executionId", "step", "position", "round");

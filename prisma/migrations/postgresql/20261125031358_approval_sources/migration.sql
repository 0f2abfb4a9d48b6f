-- DropIndex
DROP INDEX "Approval_executionId_step_position_key";

-- AlterTable
ALTER TABLE "Approval" ADD COLUMN     "description" TEXT,
ADD COLUMN     "digest" TEXT,
ADD COLUMN     "editedBy" TEXT,
ADD COLUMN     "editedInput" TEXT,
ADD COLUMN     "inputSchema" TEXT,
ADD COLUMN     "mcpId" TEXT,
ADD COLUMN     "mcpName" TEXT,
ADD COLUMN     "origin" TEXT,
ADD COLUMN     "round" INTEGER NOT NULL DEFAULT 0;

-- CreateIndex
CREATE UNIQUE INDEX "Approval_executionId_step_position_round_key" ON "Approval"("executionId", "step", "position", "round");

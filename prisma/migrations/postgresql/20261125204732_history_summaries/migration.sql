-- CreateEnum
CREATE TYPE "AgentHistory" AS ENUM ('cut', 'summarize');

-- AlterTable
ALTER TABLE "Agent" ADD COLUMN     "history" "AgentHistory" NOT NULL DEFAULT 'cut';

-- AlterTable
ALTER TABLE "Message" ADD COLUMN     "summary" TEXT;

-- Few messages end a summary. A run finds the latest of its session by this index.
CREATE INDEX "Message_sessionId_position_idx" ON "Message"("sessionId", "position") WHERE "summary" IS NOT NULL;

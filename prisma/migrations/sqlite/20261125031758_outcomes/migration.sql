-- AlterTable
ALTER TABLE "Message" ADD COLUMN "replay" TEXT;

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN "errorCode" TEXT;
ALTER TABLE "Execution" ADD COLUMN "stopReason" TEXT;
ALTER TABLE "Execution" ADD COLUMN "warnings" TEXT;

-- AlterTable
ALTER TABLE "Task" ADD COLUMN "lastError" TEXT;
ALTER TABLE "Task" ADD COLUMN "lastExecutionId" TEXT;

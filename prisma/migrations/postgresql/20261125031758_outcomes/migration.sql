-- AlterTable
ALTER TABLE "Message" ADD COLUMN     "replay" TEXT;

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "errorCode" TEXT,
ADD COLUMN     "stopReason" TEXT,
ADD COLUMN     "warnings" TEXT;

-- AlterTable
ALTER TABLE "Task" ADD COLUMN     "lastError" TEXT,
ADD COLUMN     "lastExecutionId" TEXT;

-- AlterTable
ALTER TABLE "Agent" ADD COLUMN     "output" JSONB NOT NULL DEFAULT '{}';

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "resultObject" TEXT;

-- AlterTable
ALTER TABLE "Task" ADD COLUMN     "output" JSONB NOT NULL DEFAULT '{}';

-- AlterTable
ALTER TABLE "Mission" ADD COLUMN     "output" JSONB NOT NULL DEFAULT '{}';

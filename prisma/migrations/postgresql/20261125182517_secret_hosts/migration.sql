-- AlterTable
ALTER TABLE "McpServer" ADD COLUMN     "writtenBy" TEXT;

-- AlterTable
ALTER TABLE "Secret" ADD COLUMN     "hosts" JSONB NOT NULL DEFAULT '[]';

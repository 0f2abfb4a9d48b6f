-- AlterTable
ALTER TABLE "McpServer" ADD COLUMN "source" TEXT NOT NULL DEFAULT 'organization';
ALTER TABLE "McpServer" ADD COLUMN "operatorModes" JSONB NOT NULL DEFAULT '[]';

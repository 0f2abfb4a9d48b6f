-- AlterTable
ALTER TABLE "Execution" ADD COLUMN "files" JSONB NOT NULL DEFAULT '[]';

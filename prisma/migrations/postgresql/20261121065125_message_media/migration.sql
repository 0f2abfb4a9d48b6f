-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "mediaIds" JSONB NOT NULL DEFAULT '[]';

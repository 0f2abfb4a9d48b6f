-- AlterTable
ALTER TABLE "Agent" ADD COLUMN "modelSettings" JSONB NOT NULL DEFAULT '{}';
ALTER TABLE "Agent" ADD COLUMN "fallbackModels" JSONB NOT NULL DEFAULT '[]';
ALTER TABLE "Agent" ADD COLUMN "contextWindow" INTEGER;

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN "overrides" JSONB NOT NULL DEFAULT '{}';
ALTER TABLE "Execution" ADD COLUMN "modelsTried" JSONB NOT NULL DEFAULT '[]';

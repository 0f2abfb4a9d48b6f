-- AlterTable
ALTER TABLE "Agent" ADD COLUMN     "contextWindow" INTEGER,
ADD COLUMN     "fallbackModels" JSONB NOT NULL DEFAULT '[]',
ADD COLUMN     "modelSettings" JSONB NOT NULL DEFAULT '{}';

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "modelsTried" JSONB NOT NULL DEFAULT '[]',
ADD COLUMN     "overrides" JSONB NOT NULL DEFAULT '{}';

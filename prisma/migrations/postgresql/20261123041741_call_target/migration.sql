-- AlterTable
ALTER TABLE "ToolCall" ADD COLUMN     "target" TEXT;

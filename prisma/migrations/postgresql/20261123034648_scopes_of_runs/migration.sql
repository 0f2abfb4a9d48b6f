-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "scopes" TEXT;

-- AlterTable
ALTER TABLE "Mission" ADD COLUMN     "scopes" TEXT;

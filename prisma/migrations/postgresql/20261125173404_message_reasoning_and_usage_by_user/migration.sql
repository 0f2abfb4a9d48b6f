-- AlterTable
ALTER TABLE "Message" ADD COLUMN     "reasoning" TEXT;

-- AlterTable
ALTER TABLE "UsageDay" DROP CONSTRAINT "UsageDay_pkey",
ADD COLUMN     "userId" TEXT NOT NULL DEFAULT '',
ADD CONSTRAINT "UsageDay_pkey" PRIMARY KEY ("organizationId", "date", "agentId", "model", "userId");

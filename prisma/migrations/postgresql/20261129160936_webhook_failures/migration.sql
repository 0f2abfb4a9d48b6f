-- AlterTable
ALTER TABLE "Webhook" ADD COLUMN     "failedAt" TIMESTAMP(3),
ADD COLUMN     "graceUntil" TIMESTAMP(3);

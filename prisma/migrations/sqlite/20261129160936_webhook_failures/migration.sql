-- AlterTable
ALTER TABLE "Webhook" ADD COLUMN "failedAt" DATETIME;
ALTER TABLE "Webhook" ADD COLUMN "graceUntil" DATETIME;

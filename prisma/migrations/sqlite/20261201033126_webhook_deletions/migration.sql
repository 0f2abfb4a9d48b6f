-- AlterTable
ALTER TABLE "Webhook" ADD COLUMN "deletedAt" DATETIME;

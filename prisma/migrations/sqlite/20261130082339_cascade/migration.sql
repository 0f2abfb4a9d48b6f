-- AlterTable
ALTER TABLE "Token" ADD COLUMN "cascade" BOOLEAN NOT NULL DEFAULT false;

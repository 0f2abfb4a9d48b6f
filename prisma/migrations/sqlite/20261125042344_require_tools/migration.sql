-- AlterTable
ALTER TABLE "Agent" ADD COLUMN "requireTools" BOOLEAN NOT NULL DEFAULT false;

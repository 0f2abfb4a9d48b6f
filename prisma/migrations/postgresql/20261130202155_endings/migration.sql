-- CreateEnum
CREATE TYPE "EndingKind" AS ENUM ('member', 'key', 'agent');

-- CreateTable
CREATE TABLE "Ending" (
    "organizationId" TEXT NOT NULL,
    "kind" "EndingKind" NOT NULL,
    "target" TEXT NOT NULL,
    "actor" TEXT NOT NULL,
    "tokenId" TEXT,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "Ending_pkey" PRIMARY KEY ("organizationId","kind","target")
);

-- CreateIndex
CREATE INDEX "Ending_createdAt_idx" ON "Ending"("createdAt");

-- AddForeignKey
ALTER TABLE "Ending" ADD CONSTRAINT "Ending_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- As in the migration large_organizations.
ALTER TABLE "Ending" ALTER COLUMN "organizationId" SET (n_distinct = 10);

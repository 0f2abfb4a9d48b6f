-- CreateTable
CREATE TABLE "Ending" (
    "organizationId" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "target" TEXT NOT NULL,
    "actor" TEXT NOT NULL,
    "tokenId" TEXT,
    "createdAt" DATETIME NOT NULL,

    PRIMARY KEY ("organizationId", "kind", "target"),
    CONSTRAINT "Ending_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateIndex
CREATE INDEX "Ending_createdAt_idx" ON "Ending"("createdAt");

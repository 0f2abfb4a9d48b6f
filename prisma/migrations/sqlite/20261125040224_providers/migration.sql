-- CreateTable
CREATE TABLE "Provider" (
    "organizationId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "baseUrl" TEXT,
    "ciphertext" BLOB NOT NULL,
    "status" TEXT NOT NULL,
    "error" TEXT,
    "setAt" DATETIME NOT NULL,
    "setBy" TEXT NOT NULL,

    PRIMARY KEY ("organizationId", "name"),
    CONSTRAINT "Provider_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

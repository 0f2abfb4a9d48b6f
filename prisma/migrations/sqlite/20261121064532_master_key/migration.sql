-- CreateTable
CREATE TABLE "UserIdentity" (
    "issuer" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,

    PRIMARY KEY ("issuer", "subject"),
    CONSTRAINT "UserIdentity_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- RedefineTables
PRAGMA defer_foreign_keys=ON;
PRAGMA foreign_keys=OFF;
CREATE TABLE "new_Installation" (
    "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "masterKey" BLOB NOT NULL,
    "createdAt" DATETIME NOT NULL
);
INSERT INTO "new_Installation" ("createdAt", "id") SELECT "createdAt", "id" FROM "Installation";
DROP TABLE "Installation";
ALTER TABLE "new_Installation" RENAME TO "Installation";
PRAGMA foreign_keys=ON;
PRAGMA defer_foreign_keys=OFF;

-- CreateIndex
CREATE UNIQUE INDEX "UserIdentity_issuer_userId_key" ON "UserIdentity"("issuer", "userId");

-- AlterTable
ALTER TABLE "User" ADD COLUMN "passwordHash" TEXT;
ALTER TABLE "User" ADD COLUMN "emailVerified" BOOLEAN NOT NULL DEFAULT true;

-- CreateTable
CREATE TABLE "BrowserSession" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "userId" TEXT NOT NULL,
    "digest" TEXT NOT NULL,
    "method" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "lastSeenAt" DATETIME NOT NULL,
    "expiresAt" DATETIME NOT NULL,
    "userAgent" TEXT,
    "address" TEXT,
    CONSTRAINT "BrowserSession_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "OneTimeLink" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "userId" TEXT NOT NULL,
    "digest" TEXT NOT NULL,
    "purpose" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "expiresAt" DATETIME NOT NULL,
    CONSTRAINT "OneTimeLink_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "SignInLimit" (
    "key" TEXT NOT NULL PRIMARY KEY,
    "times" JSONB NOT NULL,
    "expiresAt" DATETIME NOT NULL
);

-- CreateIndex
CREATE UNIQUE INDEX "BrowserSession_digest_key" ON "BrowserSession"("digest");

-- CreateIndex
CREATE INDEX "BrowserSession_userId_createdAt_id_idx" ON "BrowserSession"("userId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "BrowserSession_expiresAt_idx" ON "BrowserSession"("expiresAt");

-- CreateIndex
CREATE UNIQUE INDEX "OneTimeLink_digest_key" ON "OneTimeLink"("digest");

-- CreateIndex
CREATE INDEX "OneTimeLink_userId_createdAt_idx" ON "OneTimeLink"("userId", "createdAt");

-- CreateIndex
CREATE INDEX "OneTimeLink_expiresAt_idx" ON "OneTimeLink"("expiresAt");

-- CreateIndex
CREATE INDEX "SignInLimit_expiresAt_idx" ON "SignInLimit"("expiresAt");

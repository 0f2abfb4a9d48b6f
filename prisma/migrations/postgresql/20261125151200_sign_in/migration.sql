-- CreateEnum
CREATE TYPE "SignInMethod" AS ENUM ('password', 'oidc', 'link');

-- CreateEnum
CREATE TYPE "LinkPurpose" AS ENUM ('sign_in', 'reset_password');

-- AlterTable
ALTER TABLE "User" ADD COLUMN     "emailVerified" BOOLEAN NOT NULL DEFAULT true,
ADD COLUMN     "passwordHash" TEXT;

-- CreateTable
CREATE TABLE "BrowserSession" (
    "id" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "digest" TEXT NOT NULL,
    "method" "SignInMethod" NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "lastSeenAt" TIMESTAMP(3) NOT NULL,
    "expiresAt" TIMESTAMP(3) NOT NULL,
    "userAgent" TEXT,
    "address" TEXT,

    CONSTRAINT "BrowserSession_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "OneTimeLink" (
    "id" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "digest" TEXT NOT NULL,
    "purpose" "LinkPurpose" NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "expiresAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "OneTimeLink_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "SignInLimit" (
    "key" TEXT NOT NULL,
    "times" JSONB NOT NULL,
    "expiresAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "SignInLimit_pkey" PRIMARY KEY ("key")
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

-- AddForeignKey
ALTER TABLE "BrowserSession" ADD CONSTRAINT "BrowserSession_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "OneTimeLink" ADD CONSTRAINT "OneTimeLink_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User"("id") ON DELETE CASCADE ON UPDATE CASCADE;

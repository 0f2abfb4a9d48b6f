-- AlterTable
ALTER TABLE "AuditEvent" ADD COLUMN "changes" TEXT;
ALTER TABLE "AuditEvent" ADD COLUMN "ip" TEXT;
ALTER TABLE "AuditEvent" ADD COLUMN "requestId" TEXT;

-- CreateTable
CREATE TABLE "FormerSlug" (
    "slug" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "endsAt" DATETIME NOT NULL,
    CONSTRAINT "FormerSlug_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "Invitation" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "email" TEXT NOT NULL,
    "role" TEXT NOT NULL,
    "digest" TEXT NOT NULL,
    "mailOnly" BOOLEAN NOT NULL,
    "createdBy" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "expiresAt" DATETIME NOT NULL,
    CONSTRAINT "Invitation_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "ServiceAccount" (
    "userId" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "createdBy" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    CONSTRAINT "ServiceAccount_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "TokenAddress" (
    "tokenId" TEXT NOT NULL,
    "network" TEXT NOT NULL,
    "seenAt" DATETIME NOT NULL,

    PRIMARY KEY ("tokenId", "network"),
    CONSTRAINT "TokenAddress_tokenId_fkey" FOREIGN KEY ("tokenId") REFERENCES "Token" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "RateWindow" (
    "key" TEXT NOT NULL,
    "startsAt" DATETIME NOT NULL,
    "endsAt" DATETIME NOT NULL,
    "count" INTEGER NOT NULL,

    PRIMARY KEY ("key", "startsAt")
);

-- CreateIndex
CREATE INDEX "FormerSlug_organizationId_idx" ON "FormerSlug"("organizationId");

-- CreateIndex
CREATE UNIQUE INDEX "Invitation_digest_key" ON "Invitation"("digest");

-- CreateIndex
CREATE INDEX "Invitation_organizationId_createdAt_id_idx" ON "Invitation"("organizationId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Invitation_organizationId_email_idx" ON "Invitation"("organizationId", "email");

-- CreateIndex
CREATE INDEX "Invitation_expiresAt_idx" ON "Invitation"("expiresAt");

-- CreateIndex
CREATE UNIQUE INDEX "Invitation_organizationId_id_key" ON "Invitation"("organizationId", "id");

-- CreateIndex
CREATE INDEX "ServiceAccount_organizationId_createdAt_userId_idx" ON "ServiceAccount"("organizationId", "createdAt", "userId");

-- CreateIndex
CREATE INDEX "TokenAddress_seenAt_idx" ON "TokenAddress"("seenAt");

-- CreateIndex
CREATE INDEX "RateWindow_endsAt_idx" ON "RateWindow"("endsAt");

-- CreateIndex
CREATE INDEX "AuditEvent_organizationId_action_at_id_idx" ON "AuditEvent"("organizationId", "action", "at", "id");

-- CreateIndex
CREATE INDEX "AuditEvent_organizationId_actor_at_id_idx" ON "AuditEvent"("organizationId", "actor", "at", "id");

-- CreateIndex
CREATE INDEX "AuditEvent_organizationId_target_at_id_idx" ON "AuditEvent"("organizationId", "target", "at", "id");

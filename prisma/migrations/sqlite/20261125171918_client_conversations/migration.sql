-- CreateTable
CREATE TABLE "ConversationName" (
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "protocol" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,

    PRIMARY KEY ("organizationId", "userId", "agentId", "protocol", "name"),
    CONSTRAINT "ConversationName_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "ConversationName_organizationId_sessionId_fkey" FOREIGN KEY ("organizationId", "sessionId") REFERENCES "Session" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateIndex
CREATE INDEX "ConversationName_organizationId_sessionId_idx" ON "ConversationName"("organizationId", "sessionId");

-- AlterEnum
ALTER TYPE "ExecutionWait" ADD VALUE 'client_tool';

-- CreateTable
CREATE TABLE "ConversationName" (
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "agentId" TEXT NOT NULL,
    "protocol" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "sessionId" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "ConversationName_pkey" PRIMARY KEY ("organizationId","userId","agentId","protocol","name")
);

-- CreateIndex
CREATE INDEX "ConversationName_organizationId_sessionId_idx" ON "ConversationName"("organizationId", "sessionId");

-- AddForeignKey
ALTER TABLE "ConversationName" ADD CONSTRAINT "ConversationName_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "ConversationName" ADD CONSTRAINT "ConversationName_organizationId_sessionId_fkey" FOREIGN KEY ("organizationId", "sessionId") REFERENCES "Session"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

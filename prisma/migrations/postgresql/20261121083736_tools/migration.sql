-- CreateEnum
CREATE TYPE "ApprovalStatus" AS ENUM ('pending', 'approved', 'denied', 'expired');

-- AlterTable
ALTER TABLE "Execution" ADD COLUMN     "waitedMs" INTEGER NOT NULL DEFAULT 0,
ADD COLUMN     "waitingSince" TIMESTAMP(3);

-- CreateTable
CREATE TABLE "ExecutionStep" (
    "executionId" TEXT NOT NULL,
    "step" INTEGER NOT NULL,
    "reply" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "ExecutionStep_pkey" PRIMARY KEY ("executionId","step")
);

-- CreateTable
CREATE TABLE "ToolCall" (
    "executionId" TEXT NOT NULL,
    "step" INTEGER NOT NULL,
    "position" INTEGER NOT NULL,
    "toolUseId" TEXT NOT NULL,
    "startedAt" TIMESTAMP(3),
    "completedAt" TIMESTAMP(3),
    "content" TEXT,
    "isError" BOOLEAN NOT NULL DEFAULT false,
    "childExecutionId" TEXT,

    CONSTRAINT "ToolCall_pkey" PRIMARY KEY ("executionId","step","position")
);

-- CreateTable
CREATE TABLE "Approval" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "executionId" TEXT NOT NULL,
    "chatId" TEXT NOT NULL,
    "step" INTEGER NOT NULL,
    "position" INTEGER NOT NULL,
    "toolUseId" TEXT NOT NULL,
    "tool" TEXT NOT NULL,
    "input" TEXT NOT NULL,
    "status" "ApprovalStatus" NOT NULL,
    "reason" TEXT,
    "decidedBy" TEXT,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "expiresAt" TIMESTAMP(3) NOT NULL,
    "decidedAt" TIMESTAMP(3),

    CONSTRAINT "Approval_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Skill" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "displayName" TEXT NOT NULL,
    "description" TEXT NOT NULL,
    "prompt" TEXT NOT NULL,
    "category" TEXT NOT NULL,
    "builtInTools" JSONB NOT NULL,
    "requiredMCPs" JSONB NOT NULL,
    "visibility" "SpaceVisibility" NOT NULL,
    "version" INTEGER NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "Skill_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "SpaceSkill" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "skillId" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "addedAt" TIMESTAMP(3) NOT NULL,
    "addedBy" TEXT NOT NULL,

    CONSTRAINT "SpaceSkill_pkey" PRIMARY KEY ("spaceId","skillId")
);

-- CreateTable
CREATE TABLE "McpServer" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "mcpType" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "description" TEXT,
    "isActive" BOOLEAN NOT NULL DEFAULT true,
    "url" TEXT NOT NULL,
    "transport" TEXT NOT NULL,
    "headers" JSONB NOT NULL,
    "permissions" JSONB NOT NULL,
    "usageCount" INTEGER NOT NULL DEFAULT 0,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "McpServer_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "McpCredential" (
    "organizationId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "ciphertext" BYTEA NOT NULL,
    "isSecret" BOOLEAN NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "McpCredential_pkey" PRIMARY KEY ("mcpId","name")
);

-- CreateTable
CREATE TABLE "SpaceMcp" (
    "organizationId" TEXT NOT NULL,
    "spaceId" TEXT NOT NULL,
    "mcpId" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "addedAt" TIMESTAMP(3) NOT NULL,
    "addedBy" TEXT NOT NULL,

    CONSTRAINT "SpaceMcp_pkey" PRIMARY KEY ("spaceId","mcpId")
);

-- CreateIndex
CREATE INDEX "Approval_organizationId_status_createdAt_id_idx" ON "Approval"("organizationId", "status", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Approval_organizationId_createdAt_id_idx" ON "Approval"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Approval_status_expiresAt_idx" ON "Approval"("status", "expiresAt");

-- CreateIndex
CREATE UNIQUE INDEX "Approval_organizationId_id_key" ON "Approval"("organizationId", "id");

-- CreateIndex
CREATE UNIQUE INDEX "Approval_executionId_step_position_key" ON "Approval"("executionId", "step", "position");

-- CreateIndex
CREATE INDEX "Skill_organizationId_createdAt_id_idx" ON "Skill"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE INDEX "Skill_visibility_createdAt_id_idx" ON "Skill"("visibility", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "Skill_organizationId_id_key" ON "Skill"("organizationId", "id");

-- CreateIndex
CREATE UNIQUE INDEX "Skill_organizationId_name_key" ON "Skill"("organizationId", "name");

-- CreateIndex
CREATE INDEX "SpaceSkill_organizationId_skillId_idx" ON "SpaceSkill"("organizationId", "skillId");

-- CreateIndex
CREATE INDEX "McpServer_organizationId_createdAt_id_idx" ON "McpServer"("organizationId", "createdAt" DESC, "id" DESC);

-- CreateIndex
CREATE UNIQUE INDEX "McpServer_organizationId_id_key" ON "McpServer"("organizationId", "id");

-- CreateIndex
CREATE INDEX "SpaceMcp_organizationId_mcpId_idx" ON "SpaceMcp"("organizationId", "mcpId");

-- AddForeignKey
ALTER TABLE "ExecutionStep" ADD CONSTRAINT "ExecutionStep_executionId_fkey" FOREIGN KEY ("executionId") REFERENCES "Execution"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "ToolCall" ADD CONSTRAINT "ToolCall_executionId_fkey" FOREIGN KEY ("executionId") REFERENCES "Execution"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "ToolCall" ADD CONSTRAINT "ToolCall_executionId_step_fkey" FOREIGN KEY ("executionId", "step") REFERENCES "ExecutionStep"("executionId", "step") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Approval" ADD CONSTRAINT "Approval_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Approval" ADD CONSTRAINT "Approval_organizationId_executionId_fkey" FOREIGN KEY ("organizationId", "executionId") REFERENCES "Execution"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Skill" ADD CONSTRAINT "Skill_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "Skill" ADD CONSTRAINT "Skill_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "SpaceSkill" ADD CONSTRAINT "SpaceSkill_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "McpServer" ADD CONSTRAINT "McpServer_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "McpServer" ADD CONSTRAINT "McpServer_ownerId_fkey" FOREIGN KEY ("ownerId") REFERENCES "User"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "McpCredential" ADD CONSTRAINT "McpCredential_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "SpaceMcp" ADD CONSTRAINT "SpaceMcp_organizationId_spaceId_fkey" FOREIGN KEY ("organizationId", "spaceId") REFERENCES "Space"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "SpaceMcp" ADD CONSTRAINT "SpaceMcp_organizationId_mcpId_fkey" FOREIGN KEY ("organizationId", "mcpId") REFERENCES "McpServer"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- CreateIndex
CREATE INDEX "Media_organizationId_userId_name_idx" ON "Media"("organizationId", "userId", "name");

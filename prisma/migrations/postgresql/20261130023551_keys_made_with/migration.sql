-- CreateIndex
CREATE INDEX "Token_tokenId_idx" ON "Token"("tokenId");

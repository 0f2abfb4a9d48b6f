-- AlterTable
ALTER TABLE "Installation" DROP COLUMN "keyCheck",
ADD COLUMN     "masterKey" BYTEA NOT NULL;

-- CreateTable
CREATE TABLE "UserIdentity" (
    "issuer" TEXT NOT NULL,
    "subject" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "UserIdentity_pkey" PRIMARY KEY ("issuer","subject")
);

-- CreateIndex
CREATE UNIQUE INDEX "UserIdentity_issuer_userId_key" ON "UserIdentity"("issuer", "userId");

-- AddForeignKey
ALTER TABLE "UserIdentity" ADD CONSTRAINT "UserIdentity_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User"("id") ON DELETE CASCADE ON UPDATE CASCADE;

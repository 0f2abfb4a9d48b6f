-- CreateTable
CREATE TABLE "Provider" (
    "organizationId" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "baseUrl" TEXT,
    "ciphertext" BYTEA NOT NULL,
    "status" TEXT NOT NULL,
    "error" TEXT,
    "setAt" TIMESTAMP(3) NOT NULL,
    "setBy" TEXT NOT NULL,

    CONSTRAINT "Provider_pkey" PRIMARY KEY ("organizationId","name")
);

-- AddForeignKey
ALTER TABLE "Provider" ADD CONSTRAINT "Provider_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- CreateEnum
CREATE TYPE "WebhookFormat" AS ENUM ('standard', 'slack', 'discord', 'teams');

-- CreateEnum
CREATE TYPE "DeliveryStatus" AS ENUM ('pending', 'delivered', 'failed');

-- AlterTable
ALTER TABLE "Installation" ADD COLUMN     "eventBase" BIGINT NOT NULL DEFAULT 0;

-- CreateTable
CREATE TABLE "OrganizationEvent" (
    "organizationId" TEXT NOT NULL,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "type" TEXT NOT NULL,
    "subjectId" TEXT NOT NULL,
    "data" TEXT,
    "at" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "OrganizationEvent_pkey" PRIMARY KEY ("organizationId","position","sequence")
);

-- CreateTable
CREATE TABLE "Webhook" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "url" BYTEA NOT NULL,
    "shownUrl" TEXT NOT NULL,
    "description" TEXT NOT NULL,
    "events" JSONB NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "format" "WebhookFormat" NOT NULL,
    "includeContent" BOOLEAN NOT NULL,
    "secret" BYTEA NOT NULL,
    "oldSecret" BYTEA,
    "oldSecretUntil" TIMESTAMP(3),
    "failingSince" TIMESTAMP(3),
    "disabledReason" TEXT,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL,
    "updatedAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "Webhook_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "WebhookDelivery" (
    "id" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL,
    "webhookId" TEXT NOT NULL,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "event" TEXT NOT NULL,
    "subjectId" TEXT NOT NULL,
    "status" "DeliveryStatus" NOT NULL,
    "attempts" JSONB NOT NULL DEFAULT '[]',
    "step" INTEGER NOT NULL DEFAULT 0,
    "nextAttemptAt" TIMESTAMP(3),
    "leasedUntil" TIMESTAMP(3),
    "claims" INTEGER NOT NULL DEFAULT 0,
    "createdAt" TIMESTAMP(3) NOT NULL,

    CONSTRAINT "WebhookDelivery_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "MailNotifications" (
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "approvals" BOOLEAN NOT NULL,
    "missions" BOOLEAN NOT NULL,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,

    CONSTRAINT "MailNotifications_pkey" PRIMARY KEY ("organizationId","userId")
);

-- CreateIndex
CREATE INDEX "Webhook_organizationId_createdAt_id_idx" ON "Webhook"("organizationId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "Webhook_enabled_organizationId_idx" ON "Webhook"("enabled", "organizationId");

-- CreateIndex
CREATE UNIQUE INDEX "Webhook_organizationId_id_key" ON "Webhook"("organizationId", "id");

-- CreateIndex
CREATE INDEX "WebhookDelivery_webhookId_createdAt_id_idx" ON "WebhookDelivery"("webhookId", "createdAt", "id");

-- CreateIndex
CREATE INDEX "WebhookDelivery_webhookId_status_nextAttemptAt_idx" ON "WebhookDelivery"("webhookId", "status", "nextAttemptAt");

-- CreateIndex
CREATE UNIQUE INDEX "WebhookDelivery_organizationId_id_key" ON "WebhookDelivery"("organizationId", "id");

-- AddForeignKey
ALTER TABLE "Webhook" ADD CONSTRAINT "Webhook_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "WebhookDelivery" ADD CONSTRAINT "WebhookDelivery_organizationId_webhookId_fkey" FOREIGN KEY ("organizationId", "webhookId") REFERENCES "Webhook"("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "MailNotifications" ADD CONSTRAINT "MailNotifications_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- AddForeignKey
ALTER TABLE "MailNotifications" ADD CONSTRAINT "MailNotifications_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User"("id") ON DELETE CASCADE ON UPDATE CASCADE;

-- Numbers events. Transactions commit in another order than they take numbers, so that the feed goes by their ids.
CREATE SEQUENCE "OrganizationEvent_sequence_seq";

CREATE FUNCTION "writeEvent"("of" text, "what" text, "subject" text, "json" text, "moment" timestamp)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO "OrganizationEvent"
    ("organizationId", "position", "sequence", "type", "subjectId", "data", "at")
  VALUES ("of",
    coalesce((SELECT "eventBase" FROM "Installation" WHERE "id" = 1), 0) + pg_current_xact_id()::text::bigint,
    nextval('"OrganizationEvent_sequence_seq"'), "what", "subject", "json", "moment")
$$;

-- The way to write an event.
CREATE VIEW "NewEvent" AS
SELECT "organizationId", "type", "subjectId", "data", "at" FROM "OrganizationEvent";

CREATE FUNCTION "insertEvent"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM "writeEvent"(NEW."organizationId", NEW."type", NEW."subjectId", NEW."data", NEW."at");
  RETURN NEW;
END $$;

CREATE TRIGGER "insert" INSTEAD OF INSERT ON "NewEvent" FOR EACH ROW EXECUTE FUNCTION "insertEvent"();

-- Events are written by triggers: they cost a run no statement, and no way to change a row can forget them. The data are
-- those of the row that may have changed again when somebody reads the event.
CREATE FUNCTION "announceExecution"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM "writeEvent"(NEW."organizationId",
    'execution.' || CASE TG_ARGV[0] WHEN 'ended' THEN NEW."status"::text ELSE TG_ARGV[0] END, NEW."id", NULL,
    CASE TG_ARGV[0] WHEN 'started' THEN NEW."startedAt" WHEN 'waiting' THEN NEW."waitingSince"
      ELSE NEW."completedAt" END);
  RETURN NULL;
END $$;

CREATE TRIGGER "event_insert" AFTER INSERT ON "Execution" FOR EACH ROW
  WHEN (NEW."startedAt" IS NOT NULL) EXECUTE FUNCTION "announceExecution"('started');
CREATE TRIGGER "event_started" AFTER UPDATE OF "startedAt" ON "Execution" FOR EACH ROW
  WHEN (OLD."startedAt" IS NULL AND NEW."startedAt" IS NOT NULL) EXECUTE FUNCTION "announceExecution"('started');
CREATE TRIGGER "event_waiting" AFTER UPDATE OF "waitingFor" ON "Execution" FOR EACH ROW
  WHEN (OLD."waitingFor" IS NULL AND NEW."waitingFor" IS NOT NULL) EXECUTE FUNCTION "announceExecution"('waiting');
CREATE TRIGGER "event_ended" AFTER UPDATE OF "terminalSeq" ON "Execution" FOR EACH ROW
  WHEN (OLD."terminalSeq" IS NULL AND NEW."terminalSeq" IS NOT NULL) EXECUTE FUNCTION "announceExecution"('ended');

CREATE FUNCTION "announceApproval"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM "writeEvent"(NEW."organizationId",
    CASE NEW."status" WHEN 'pending' THEN 'approval.created' WHEN 'expired' THEN 'approval.expired'
      ELSE 'approval.decided' END, NEW."id", NULL, coalesce(NEW."decidedAt", NEW."createdAt"));
  RETURN NULL;
END $$;

CREATE TRIGGER "event_insert" AFTER INSERT ON "Approval" FOR EACH ROW EXECUTE FUNCTION "announceApproval"();
CREATE TRIGGER "event_decided" AFTER UPDATE OF "status" ON "Approval" FOR EACH ROW
  WHEN (OLD."status" = 'pending' AND NEW."status" <> 'pending') EXECUTE FUNCTION "announceApproval"();

CREATE FUNCTION "announceChat"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM "writeEvent"(NEW."organizationId", 'chat.needs_attention', NEW."id", NULL, NEW."updatedAt");
  RETURN NULL;
END $$;

CREATE TRIGGER "event_attention" AFTER UPDATE OF "status" ON "Chat" FOR EACH ROW
  WHEN (OLD."status" <> 'needs_attention' AND NEW."status" = 'needs_attention') EXECUTE FUNCTION "announceChat"();

CREATE FUNCTION "announceTask"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  "then" jsonb := jsonb_build_object('title', NEW."title", 'status', NEW."status", 'priority', NEW."priority",
    'assignedTo', NEW."assignedTo");
BEGIN
  IF TG_ARGV[0] = 'status_changed' THEN
    "then" := "then" || jsonb_build_object('previousStatus', OLD."status");
  END IF;
  PERFORM "writeEvent"(NEW."organizationId", 'task.' || TG_ARGV[0], NEW."id", "then"::text, NEW."updatedAt");
  RETURN NULL;
END $$;

CREATE TRIGGER "event_insert" AFTER INSERT ON "Task" FOR EACH ROW EXECUTE FUNCTION "announceTask"('created');
CREATE TRIGGER "event_insert_assigned" AFTER INSERT ON "Task" FOR EACH ROW
  WHEN (NEW."assignedTo" IS NOT NULL) EXECUTE FUNCTION "announceTask"('assigned');
CREATE TRIGGER "event_updated" AFTER UPDATE ON "Task" FOR EACH ROW
  WHEN ((OLD."title", OLD."description", OLD."status", OLD."priority", OLD."assignedTo", OLD."spaceId")
    IS DISTINCT FROM (NEW."title", NEW."description", NEW."status", NEW."priority", NEW."assignedTo", NEW."spaceId"))
  EXECUTE FUNCTION "announceTask"('updated');
CREATE TRIGGER "event_status" AFTER UPDATE OF "status" ON "Task" FOR EACH ROW
  WHEN (OLD."status" <> NEW."status") EXECUTE FUNCTION "announceTask"('status_changed');
CREATE TRIGGER "event_completed" AFTER UPDATE OF "status" ON "Task" FOR EACH ROW
  WHEN (OLD."status" <> 'completed' AND NEW."status" = 'completed') EXECUTE FUNCTION "announceTask"('completed');
CREATE TRIGGER "event_assigned" AFTER UPDATE OF "assignedTo" ON "Task" FOR EACH ROW
  WHEN (OLD."assignedTo" IS DISTINCT FROM NEW."assignedTo" AND NEW."assignedTo" IS NOT NULL)
  EXECUTE FUNCTION "announceTask"('assigned');

CREATE FUNCTION "announceMission"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM "writeEvent"(NEW."organizationId", 'mission.' || TG_ARGV[0], NEW."id", (CASE TG_ARGV[0]
    WHEN 'run_failed' THEN json_build_object('lastStatus', NEW."lastStatus", 'lastExecutionId', NEW."lastExecutionId",
      'failureCount', NEW."failureCount")
    WHEN 'paused' THEN json_build_object('status', NEW."status", 'pauseReason', NEW."pauseReason")
    ELSE json_build_object('skipped', NEW."skippedCount" - OLD."skippedCount", 'skippedCount', NEW."skippedCount")
    END)::text, NEW."updatedAt");
  RETURN NULL;
END $$;

CREATE TRIGGER "event_failed" AFTER UPDATE OF "lastExecutionId" ON "Mission" FOR EACH ROW
  WHEN (OLD."lastExecutionId" IS DISTINCT FROM NEW."lastExecutionId" AND NEW."lastStatus" = 'failed')
  EXECUTE FUNCTION "announceMission"('run_failed');
CREATE TRIGGER "event_paused" AFTER UPDATE OF "status" ON "Mission" FOR EACH ROW
  WHEN (OLD."status" <> 'paused' AND NEW."status" = 'paused') EXECUTE FUNCTION "announceMission"('paused');
CREATE TRIGGER "event_skipped" AFTER UPDATE OF "skippedCount" ON "Mission" FOR EACH ROW
  WHEN (NEW."skippedCount" > OLD."skippedCount") EXECUTE FUNCTION "announceMission"('skipped');

CREATE FUNCTION "announceAgent"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM "writeEvent"(NEW."organizationId", 'agent.' || TG_ARGV[0], NEW."id",
    CASE TG_OP WHEN 'UPDATE' THEN json_build_object('version', NEW."version")::text END, NEW."updatedAt");
  RETURN NULL;
END $$;

CREATE TRIGGER "event_insert" AFTER INSERT ON "Agent" FOR EACH ROW EXECUTE FUNCTION "announceAgent"('created');
CREATE TRIGGER "event_updated" AFTER UPDATE OF "version" ON "Agent" FOR EACH ROW
  WHEN (OLD."version" <> NEW."version" AND OLD."archivedAt" IS NOT DISTINCT FROM NEW."archivedAt")
  EXECUTE FUNCTION "announceAgent"('updated');
CREATE TRIGGER "event_archived" AFTER UPDATE OF "archivedAt" ON "Agent" FOR EACH ROW
  WHEN (OLD."archivedAt" IS NULL AND NEW."archivedAt" IS NOT NULL) EXECUTE FUNCTION "announceAgent"('archived');

-- Each run writes two events, so the rows stand in their primary key: one page to write instead of two.
CREATE TABLE "OrganizationEvent" (
    "organizationId" TEXT NOT NULL,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "type" TEXT NOT NULL,
    "subjectId" TEXT NOT NULL,
    "data" TEXT,
    "at" DATETIME NOT NULL,

    PRIMARY KEY ("organizationId", "position", "sequence")
) WITHOUT ROWID;

-- CreateTable
CREATE TABLE "Webhook" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "ownerId" TEXT NOT NULL,
    "url" BLOB NOT NULL,
    "shownUrl" TEXT NOT NULL,
    "description" TEXT NOT NULL,
    "events" JSONB NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "format" TEXT NOT NULL,
    "includeContent" BOOLEAN NOT NULL,
    "secret" BLOB NOT NULL,
    "oldSecret" BLOB,
    "oldSecretUntil" DATETIME,
    "failingSince" DATETIME,
    "disabledReason" TEXT,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "createdAt" DATETIME NOT NULL,
    "updatedAt" DATETIME NOT NULL,
    CONSTRAINT "Webhook_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "WebhookDelivery" (
    "id" TEXT NOT NULL PRIMARY KEY,
    "organizationId" TEXT NOT NULL,
    "webhookId" TEXT NOT NULL,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,
    "event" TEXT NOT NULL,
    "subjectId" TEXT NOT NULL,
    "status" TEXT NOT NULL,
    "attempts" JSONB NOT NULL DEFAULT '[]',
    "step" INTEGER NOT NULL DEFAULT 0,
    "nextAttemptAt" DATETIME,
    "leasedUntil" DATETIME,
    "claims" INTEGER NOT NULL DEFAULT 0,
    "createdAt" DATETIME NOT NULL,
    CONSTRAINT "WebhookDelivery_organizationId_webhookId_fkey" FOREIGN KEY ("organizationId", "webhookId") REFERENCES "Webhook" ("organizationId", "id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- CreateTable
CREATE TABLE "MailNotifications" (
    "organizationId" TEXT NOT NULL,
    "userId" TEXT NOT NULL,
    "approvals" BOOLEAN NOT NULL,
    "missions" BOOLEAN NOT NULL,
    "position" BIGINT NOT NULL,
    "sequence" BIGINT NOT NULL,

    PRIMARY KEY ("organizationId", "userId"),
    CONSTRAINT "MailNotifications_organizationId_fkey" FOREIGN KEY ("organizationId") REFERENCES "Organization" ("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "MailNotifications_userId_fkey" FOREIGN KEY ("userId") REFERENCES "User" ("id") ON DELETE CASCADE ON UPDATE CASCADE
);

-- AlterTable
ALTER TABLE "Installation" ADD COLUMN "eventBase" BIGINT NOT NULL DEFAULT 0;

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

-- The way to write an event: it takes the number after the newest one of its organization. There is one writer, so that
-- the numbers are in the order of the commits. Retention keeps the newest event, so that no number is used twice.
CREATE VIEW "NewEvent" AS
SELECT "organizationId", "type", "subjectId", "data", "at" FROM "OrganizationEvent";

CREATE TRIGGER "NewEvent_insert" INSTEAD OF INSERT ON "NewEvent" BEGIN
  INSERT INTO "OrganizationEvent"
    ("organizationId", "position", "sequence", "type", "subjectId", "data", "at")
  SELECT NEW."organizationId", "next", "next", NEW."type", NEW."subjectId", NEW."data", NEW."at"
  FROM (
    SELECT coalesce(max("position"), 0) + 1 AS "next" FROM "OrganizationEvent"
    WHERE "organizationId" = NEW."organizationId");
END;

-- Events are written by triggers: they cost a run no statement, and no way to change a row can forget them. The data are
-- those of the row that may have changed again when somebody reads the event. (SQLite drops a table's triggers with it: a
-- migration that rebuilds one of these tables makes them again.)
CREATE TRIGGER "Execution_event_insert" AFTER INSERT ON "Execution" WHEN NEW."startedAt" IS NOT NULL BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'execution.started', NEW."id", NULL, NEW."startedAt");
END;

CREATE TRIGGER "Execution_event_started" AFTER UPDATE OF "startedAt" ON "Execution"
WHEN OLD."startedAt" IS NULL AND NEW."startedAt" IS NOT NULL BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'execution.started', NEW."id", NULL, NEW."startedAt");
END;

CREATE TRIGGER "Execution_event_waiting" AFTER UPDATE OF "waitingFor" ON "Execution"
WHEN OLD."waitingFor" IS NULL AND NEW."waitingFor" IS NOT NULL BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'execution.waiting', NEW."id", NULL, NEW."waitingSince");
END;

CREATE TRIGGER "Execution_event_ended" AFTER UPDATE OF "terminalSeq" ON "Execution"
WHEN OLD."terminalSeq" IS NULL AND NEW."terminalSeq" IS NOT NULL BEGIN
  INSERT INTO "NewEvent"
  VALUES (NEW."organizationId", 'execution.' || NEW."status", NEW."id", NULL, NEW."completedAt");
END;

CREATE TRIGGER "Approval_event_insert" AFTER INSERT ON "Approval" BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'approval.created', NEW."id", NULL, NEW."createdAt");
END;

CREATE TRIGGER "Approval_event_decided" AFTER UPDATE OF "status" ON "Approval"
WHEN OLD."status" = 'pending' AND NEW."status" <> 'pending' BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId",
    CASE NEW."status" WHEN 'expired' THEN 'approval.expired' ELSE 'approval.decided' END, NEW."id", NULL,
    NEW."decidedAt");
END;

CREATE TRIGGER "Chat_event_attention" AFTER UPDATE OF "status" ON "Chat"
WHEN OLD."status" <> 'needs_attention' AND NEW."status" = 'needs_attention' BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'chat.needs_attention', NEW."id", NULL, NEW."updatedAt");
END;

CREATE TRIGGER "Task_event_insert" AFTER INSERT ON "Task" BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'task.created', NEW."id", json_object('title', NEW."title", 'status', NEW."status", 'priority', NEW."priority",
    'assignedTo', NEW."assignedTo"), NEW."createdAt");
END;

CREATE TRIGGER "Task_event_insert_assigned" AFTER INSERT ON "Task" WHEN NEW."assignedTo" IS NOT NULL BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'task.assigned', NEW."id", json_object('title', NEW."title", 'status', NEW."status", 'priority', NEW."priority",
    'assignedTo', NEW."assignedTo"), NEW."createdAt");
END;

CREATE TRIGGER "Task_event_updated" AFTER UPDATE ON "Task" WHEN OLD."title" <> NEW."title" OR OLD."description" <> NEW."description"
  OR OLD."status" <> NEW."status" OR OLD."priority" <> NEW."priority" OR OLD."assignedTo" IS NOT NEW."assignedTo"
  OR OLD."spaceId" IS NOT NEW."spaceId" BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'task.updated', NEW."id", json_object('title', NEW."title", 'status', NEW."status", 'priority', NEW."priority",
    'assignedTo', NEW."assignedTo"), NEW."updatedAt");
END;

CREATE TRIGGER "Task_event_status" AFTER UPDATE OF "status" ON "Task" WHEN OLD."status" <> NEW."status" BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'task.status_changed', NEW."id", json_object('title', NEW."title", 'status', NEW."status", 'priority', NEW."priority",
    'assignedTo', NEW."assignedTo", 'previousStatus', OLD."status"), NEW."updatedAt");
END;

CREATE TRIGGER "Task_event_completed" AFTER UPDATE OF "status" ON "Task" WHEN OLD."status" <> 'completed' AND NEW."status" = 'completed' BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'task.completed', NEW."id", json_object('title', NEW."title", 'status', NEW."status", 'priority', NEW."priority",
    'assignedTo', NEW."assignedTo"), NEW."updatedAt");
END;

CREATE TRIGGER "Task_event_assigned" AFTER UPDATE OF "assignedTo" ON "Task" WHEN OLD."assignedTo" IS NOT NEW."assignedTo" AND NEW."assignedTo" IS NOT NULL BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'task.assigned', NEW."id", json_object('title', NEW."title", 'status', NEW."status", 'priority', NEW."priority",
    'assignedTo', NEW."assignedTo"), NEW."updatedAt");
END;

CREATE TRIGGER "Mission_event_failed" AFTER UPDATE OF "lastExecutionId" ON "Mission" WHEN OLD."lastExecutionId" IS NOT NEW."lastExecutionId" AND NEW."lastStatus" = 'failed' BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'mission.run_failed', NEW."id", json_object(
    'lastStatus', NEW."lastStatus", 'lastExecutionId', NEW."lastExecutionId", 'failureCount', NEW."failureCount"), NEW."updatedAt");
END;

CREATE TRIGGER "Mission_event_paused" AFTER UPDATE OF "status" ON "Mission" WHEN OLD."status" <> 'paused' AND NEW."status" = 'paused' BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'mission.paused', NEW."id", json_object(
    'status', NEW."status", 'pauseReason', NEW."pauseReason"), NEW."updatedAt");
END;

CREATE TRIGGER "Mission_event_skipped" AFTER UPDATE OF "skippedCount" ON "Mission" WHEN NEW."skippedCount" > OLD."skippedCount" BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'mission.skipped', NEW."id", json_object(
    'skipped', NEW."skippedCount" - OLD."skippedCount", 'skippedCount', NEW."skippedCount"), NEW."updatedAt");
END;

CREATE TRIGGER "Agent_event_insert" AFTER INSERT ON "Agent" BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'agent.created', NEW."id", NULL, NEW."createdAt");
END;

CREATE TRIGGER "Agent_event_updated" AFTER UPDATE OF "version" ON "Agent" WHEN OLD."version" <> NEW."version" AND OLD."archivedAt" IS NEW."archivedAt" BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'agent.updated', NEW."id", json_object('version', NEW."version"), NEW."updatedAt");
END;

CREATE TRIGGER "Agent_event_archived" AFTER UPDATE OF "archivedAt" ON "Agent" WHEN OLD."archivedAt" IS NULL AND NEW."archivedAt" IS NOT NULL BEGIN
  INSERT INTO "NewEvent" VALUES (NEW."organizationId", 'agent.archived', NEW."id", json_object('version', NEW."version"), NEW."updatedAt");
END;

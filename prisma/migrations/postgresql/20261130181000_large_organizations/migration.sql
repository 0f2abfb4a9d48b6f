-- PostgreSQL keeps the plan of a statement for all organizations, and expects one of average size. Beside many small
-- organizations, that is the wrong plan for the large one: pages sorted all of its chats instead of reading the first ones
-- from an index. With ten organizations in each table, the plan suits the large one, and a small one has few rows anyway.
-- The statistics of SQLite are fixed for the same reason (src/db/sqlite/statistics.ts).
DO $$
DECLARE
  "it" record;
BEGIN
  FOR "it" IN
    SELECT c.oid::regclass AS "table", a.attname AS "column", c.reltuples > 0 AS "hasRows"
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND NOT a.attisdropped
      AND a.attname IN ('organizationId', 'agentOrganizationId')
      -- Other programs may have tables with such columns.
      AND c.relname IN (
        'Agent', 'AgentTag', 'AgentVersion', 'Approval', 'AuditEvent', 'Chat', 'ChatCount', 'ConversationName', 'DataKey',
        'Execution', 'FormerSlug', 'IdempotencyRecord', 'Invitation', 'MailNotifications', 'McpClient', 'McpConnection',
        'McpCredential', 'McpServer', 'McpSignIn', 'Media', 'Membership', 'Message', 'Mission', 'OrganizationEvent',
        'Provider', 'Secret', 'ServiceAccount', 'Session', 'Skill', 'SkillVersion', 'Space', 'SpaceAgent', 'SpaceFile',
        'SpaceMcp', 'SpaceSkill', 'Task', 'Token', 'Total', 'UsageDay', 'Webhook', 'WebhookDelivery')
    ORDER BY c.relname
  LOOP
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET (n_distinct = 10)', "it"."table", "it"."column");
    -- The statistics of an empty table would fit no row that it gets.
    IF "it"."hasRows" THEN EXECUTE format('ANALYZE %s', "it"."table"); END IF;
  END LOOP;
END $$;

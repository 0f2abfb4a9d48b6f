-- A statement that gave many agents, skills or spaces to another user changed the same totals once for each of them at
-- COMMIT. PostgreSQL keeps each version of a row until the transaction ends, and walks through all of them at the next
-- change, so 10,000 agents took 8 s and 25,000 about a minute. Now a trigger of the statement changes each total once.

-- Lets "recountOwners" run at the end of the statement, so that other updates do not pay for it.
CREATE FUNCTION "noteOwner"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('muster.moved', 'yes', true);
  RETURN NEW;
END $$;

-- Counts the rows that a statement has given to another user. The arguments are the columns that decide about totals,
-- the owner's first. Rows that are alike in them are counted together.
CREATE FUNCTION "recountOwners"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  "columns" text;
BEGIN
  PERFORM set_config('muster.moved', '', true);
  "columns" := (SELECT string_agg(quote_ident("name"), ', ') FROM unnest(TG_ARGV) AS "name");
  EXECUTE format($sql$
    INSERT INTO "Total" AS kept
    SELECT counted."organizationId", counted."list", counted."userId", counted."value", sum(counted."count" * alike."sum")
    FROM (
      SELECT %1$s, sum("sign") AS "sum"
      FROM (
        SELECT %1$s, "sign", min(%2$I) OVER same <> max(%2$I) OVER same AS "isMoved"
        FROM (SELECT "id", %1$s, 1 AS "sign" FROM "after" UNION ALL SELECT "id", %1$s, -1 FROM "before") AS it
        WINDOW same AS (PARTITION BY "id")
      ) AS it
      WHERE "isMoved" GROUP BY %1$s HAVING sum("sign") <> 0
    ) AS alike
    CROSS JOIN LATERAL "totalsOf"(jsonb_populate_record(NULL::%3$I, to_jsonb(alike))) AS counted
    GROUP BY 1, 2, 3, 4 HAVING sum(counted."count" * alike."sum") <> 0
    ORDER BY 1, 2, 3, 4
    ON CONFLICT ("organizationId", "list", "userId", "value") DO UPDATE SET "count" = kept."count" + excluded."count"
  $sql$, "columns", TG_ARGV[0], TG_TABLE_NAME);
  RETURN NULL;
END $$;

CREATE TRIGGER "owner_update" BEFORE UPDATE OF "userId" ON "Agent"
FOR EACH ROW WHEN (OLD."userId" <> NEW."userId") EXECUTE FUNCTION "noteOwner"();
CREATE TRIGGER "totals_of_owners" AFTER UPDATE ON "Agent" REFERENCING OLD TABLE AS "before" NEW TABLE AS "after"
FOR EACH STATEMENT WHEN (current_setting('muster.moved', true) = 'yes')
EXECUTE FUNCTION "recountOwners"('userId', 'organizationId', 'visibility', 'archivedAt', 'tags');
CREATE TRIGGER "owner_update" BEFORE UPDATE OF "ownerId" ON "Skill"
FOR EACH ROW WHEN (OLD."ownerId" <> NEW."ownerId") EXECUTE FUNCTION "noteOwner"();
CREATE TRIGGER "totals_of_owners" AFTER UPDATE ON "Skill" REFERENCING OLD TABLE AS "before" NEW TABLE AS "after"
FOR EACH STATEMENT WHEN (current_setting('muster.moved', true) = 'yes')
EXECUTE FUNCTION "recountOwners"('ownerId', 'organizationId', 'visibility');
CREATE TRIGGER "owner_update" BEFORE UPDATE OF "ownerId" ON "Space"
FOR EACH ROW WHEN (OLD."ownerId" <> NEW."ownerId") EXECUTE FUNCTION "noteOwner"();
CREATE TRIGGER "totals_of_owners" AFTER UPDATE ON "Space" REFERENCING OLD TABLE AS "before" NEW TABLE AS "after"
FOR EACH STATEMENT WHEN (current_setting('muster.moved', true) = 'yes')
EXECUTE FUNCTION "recountOwners"('ownerId', 'organizationId', 'visibility', 'archivedAt');

-- All other changes are still counted at the end of the transaction.
DROP TRIGGER "totals" ON "Agent";
CREATE CONSTRAINT TRIGGER "totals" AFTER INSERT OR DELETE
ON "Agent" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "keepTotals"();
CREATE CONSTRAINT TRIGGER "totals_update" AFTER UPDATE OF "visibility", "archivedAt", "tags"
ON "Agent" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (OLD."userId" = NEW."userId") EXECUTE FUNCTION "keepTotals"();

DROP TRIGGER "totals" ON "Skill";
CREATE CONSTRAINT TRIGGER "totals" AFTER INSERT OR DELETE
ON "Skill" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "keepTotals"();
CREATE CONSTRAINT TRIGGER "totals_update" AFTER UPDATE OF "visibility"
ON "Skill" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (OLD."ownerId" = NEW."ownerId") EXECUTE FUNCTION "keepTotals"();

DROP TRIGGER "totals" ON "Space";
CREATE CONSTRAINT TRIGGER "totals" AFTER INSERT OR DELETE
ON "Space" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "keepTotals"();
CREATE CONSTRAINT TRIGGER "totals_update" AFTER UPDATE OF "visibility", "archivedAt"
ON "Space" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (OLD."ownerId" = NEW."ownerId") EXECUTE FUNCTION "keepTotals"();

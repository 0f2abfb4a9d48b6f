-- Letters are counted as the service counts them: there are encodings that have others, or bytes.
DO $$ BEGIN
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION 'the encoding of the database is %, and must be UTF8', current_setting('server_encoding');
  END IF;
END $$;

-- What agents are searched by: the trigrams of their text, and whose they are, so that what few agents of an organization
-- have is found without looking at its others, or at those of others. (pg_trgm would want an extension, which not every
-- role may add, and knows letters and digits only.) COST: of few agents the planner would rather make the keys anew than
-- use the index, a millisecond each.
CREATE FUNCTION "searchKeys"("organizationId" text, "visibility" "AgentVisibility", "text" text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 100000 AS $$
DECLARE
  letters text[] := regexp_split_to_array("text", '');
  keys text[] := ARRAY['organization ' || "organizationId"];
BEGIN
  IF "visibility" = 'public' THEN
    keys := keys || 'public'::text;
  END IF;
  FOR n IN 1 .. array_length(letters, 1) - 2 LOOP
    keys := keys || (letters[n] || letters[n + 1] || letters[n + 2]);
  END LOOP;
  RETURN keys;
END $$;

-- What is new is put into it together, and until then into a list that every search looks through: a short one (KiB).
CREATE INDEX "Agent_searchKeys_idx" ON "Agent"
  USING gin ("searchKeys"("organizationId", "visibility", "searchText")) WITH (gin_pending_list_limit = 256);

-- A plan does not depend on what is there, nor are the keys of thousands made anew for a sample.
ALTER INDEX "Agent_searchKeys_idx" ALTER COLUMN 1 SET STATISTICS 0;

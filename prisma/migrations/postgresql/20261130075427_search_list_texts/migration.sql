-- Fills the searched texts of rows that exist, with the lower case of Unicode even if the locale of the database is C.
DO $$
DECLARE
  fold text := (SELECT 'COLLATE "' || collname || '"' FROM pg_collation WHERE collname = 'und-x-icu' LIMIT 1);
  searched text := 'replace(replace(replace(replace(replace(lower(normalize(%s) ' || coalesce(fold, '') || '),
    chr(962), chr(963)), ''i'' || chr(775), ''i''), ''%%'', chr(57381)), ''_'', chr(57439)), chr(92), chr(57436))';
BEGIN
  EXECUTE 'UPDATE "Space" SET "searchText" = ' || format(searched, '"name" || chr(10) || coalesce("description", '''')');
  EXECUTE 'UPDATE "Task" SET "searchText" = ' || format(searched, '"title"');
  EXECUTE 'UPDATE "Mission" SET "searchText" = ' || format(searched, '"title"');
END $$;

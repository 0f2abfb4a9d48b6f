-- The default that "message_media" gave it, [], is an empty text in SQLite: runs that were there then have no list.
UPDATE "Execution" SET "mediaIds" = '[]' WHERE "mediaIds" = '';

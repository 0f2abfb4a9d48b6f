-- Searched texts of spaces, tasks and missions. `search_list_texts` fills them in a transaction of its own, because this one
-- locks the tables.
ALTER TABLE "Space" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "Task" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "Mission" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';

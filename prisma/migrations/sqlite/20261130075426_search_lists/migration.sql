-- Searched texts of spaces, tasks and missions. `search_list_texts` fills them.
ALTER TABLE "Space" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "Task" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "Mission" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';

-- Like those of chats (`search_more`): a search reads the index of its list, and no row without the text. The console lists
-- tasks by status.
DROP INDEX "Task_organizationId_createdAt_id_idx";
CREATE INDEX "Task_organizationId_createdAt_id_idx"
  ON "Task"("organizationId", "createdAt", "id", "searchText");
DROP INDEX "Task_organizationId_status_createdAt_id_idx";
CREATE INDEX "Task_organizationId_status_createdAt_id_idx"
  ON "Task"("organizationId", "status", "createdAt", "id", "searchText");
DROP INDEX "Mission_organizationId_archivedAt_createdAt_id_idx";
CREATE INDEX "Mission_organizationId_archivedAt_createdAt_id_idx"
  ON "Mission"("organizationId", "archivedAt", "createdAt", "id", "searchText");
DROP INDEX "Space_organizationId_archivedAt_createdAt_id_visibility_ownerId_idx";
CREATE INDEX "Space_organizationId_archivedAt_createdAt_id_visibility_ownerId_idx"
  ON "Space"("organizationId", "archivedAt", "createdAt", "id", "visibility", "ownerId", "searchText");

-- Searched texts of chats, skills and MCP servers. `search_texts` fills them.
ALTER TABLE "Chat" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "Skill" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "McpServer" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';

-- Like those of agents (`search_index`): a search reads the index that chats are listed by, and no row without the text.
DROP INDEX "Chat_organizationId_archivedAt_createdAt_id_idx";
CREATE INDEX "Chat_organizationId_archivedAt_createdAt_id_idx"
  ON "Chat"("organizationId", "archivedAt", "createdAt", "id", "searchText");

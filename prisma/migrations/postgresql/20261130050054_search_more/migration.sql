-- Searched texts of chats, skills and MCP servers. `search_texts` fills them in a transaction of its own, because this one
-- locks the tables.
ALTER TABLE "Chat" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "Skill" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';
ALTER TABLE "McpServer" ADD COLUMN "searchText" TEXT NOT NULL DEFAULT '';

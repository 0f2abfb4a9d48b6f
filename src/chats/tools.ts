import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { defineTool, type Tool, type ToolUser } from '../executions/engine/run/tools.ts'
import { searchMessages } from './messages.ts'

const MAX_ROWS = 20

const searchChats = defineTool(
  'search_chats',
  'Searches the messages of the latest chats that the user can see. Returns excerpts, newest first.',
  z.object({
    query: z.string().trim().min(2).max(200),
    limit: z.int().min(1).max(MAX_ROWS).default(10).describe('Maximum number of messages'),
  }),
)

/** Creates the tool that searches chats, with the rights of the run's user within its scopes. */
export const chatTools = (deps: Deps, { actor }: ToolUser): Tool[] => [
  searchChats(async (input) => ({ messages: await searchMessages(await actor('chats:read'), deps, input) })),
]

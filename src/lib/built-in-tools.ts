/**
 * The built-in tools, which skills and agents request by name (see the `tools.ts` of tasks, files, chats and web). Also
 * read by the console, so this file imports nothing.
 */
export const BUILT_IN_TOOLS = [
  'list_tasks',
  'create_task',
  'update_task',
  'claim_task',
  'list_files',
  'read_file',
  'write_file',
  'edit_file',
  'search_files',
  'search_chats',
  'current_time',
  'web_fetch',
  'web_search',
] as const

/** Names of the built-in tools in other products (contract-2.md section 1.6). */
export const COMMON_NAMES: ReadonlyMap<string, (typeof BUILT_IN_TOOLS)[number]> = new Map([
  ['Read', 'read_file'],
  ['Write', 'write_file'],
  ['Glob', 'list_files'],
  ['LS', 'list_files'],
  ['Edit', 'edit_file'],
  ['Grep', 'search_files'],
  ['WebFetch', 'web_fetch'],
  ['WebSearch', 'web_search'],
])

import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import { defineTool, type Tool, type ToolUser } from '../executions/engine/run/tools.ts'
import { endOf } from '../lib/text.ts'
import { FilePath, ListFiles, WriteFile } from './schema.ts'
import { get, list, write } from './service.ts'

/** How much of a file a model is shown at once, in characters. */
const MAX_TEXT = 50_000
const MAX_ROWS = 200

const { path } = FilePath.shape

const listFiles = defineTool(
  'list_files',
  'Lists the files of the space, by path, a page at a time.',
  z.object({
    path: ListFiles.shape.path,
    limit: z.int().min(1).max(MAX_ROWS).default(MAX_ROWS),
    cursor: z.string().optional().describe('nextCursor of the page before'),
  }),
)

const readFile = defineTool(
  'read_file',
  'Reads a text file of the space. Of a long one it shows a part, and says where to go on.',
  z.object({
    path,
    offset: z.int().min(0).default(0).describe('At which character to begin'),
  }),
)

const writeFile = defineTool(
  'write_file',
  'Writes a text file of the space: makes it, or replaces the whole of it.',
  z.object({ path: WriteFile.shape.path, content: WriteFile.shape.content }),
)

/** The files of the run's space, as its user may read and write them, within its scopes (contract.md sections 2 and 6). */
export function fileTools(deps: Deps, { row, actor }: ToolUser): Tool[] {
  const { spaceId: id } = row
  return [
    listFiles(async (input) => list(await actor('spaces:read'), deps, { id, ...input })),
    readFile(async ({ path, offset }) => {
      const { content, encoding } = await get(await actor('spaces:read'), deps, { id, path })
      if (encoding !== 'utf8') throw badRequest('The file is not text')
      return excerpt(content, offset)
    }),
    writeFile(async (input) => {
      const { path, size } = await write(await actor('spaces:write'), deps, { id, ...input })
      return `Wrote ${path}: ${size} bytes`
    }),
  ]
}

function excerpt(content: string, offset: number): string {
  const length = z.core.util.codePointLength(content)
  if (offset > length) throw badRequest(`Invalid offset. The file has ${length} characters`)
  const start = endOf(content, offset)
  const text = content.slice(start, endOf(content, MAX_TEXT, start))
  const next = offset + MAX_TEXT
  if (next < length) return `${text}\n[Cut off after ${next} of ${length} characters: offset ${next} goes on]`
  return text || '[Nothing: the file ends here]'
}

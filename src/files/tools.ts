import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import { defineTool, type Tool, type ToolUser } from '../executions/engine/run/tools.ts'
import { endOf } from '../lib/text.ts'
import { FilePath, ListFiles, WriteFile } from './schema.ts'
import { get, list, write } from './service.ts'

/** Maximum length of a file section for a model (characters). */
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
  'Reads a text file of the space. For a long file it returns a section and the offset of the next one.',
  z.object({
    path,
    offset: z.int().min(0).default(0).describe('Offset of the first character'),
  }),
)

const writeFile = defineTool(
  'write_file',
  'Writes a text file of the space: creates it or replaces its whole content.',
  z.object({ path: WriteFile.shape.path, content: WriteFile.shape.content }),
)

/** Creates the file tools, with the rights of the run's user within its scopes (contract.md sections 2 and 6). */
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
  if (next < length) return `${text}\n[Cut off after ${next} of ${length} characters: continue with offset ${next}]`
  return text || '[Nothing: the file ends here]'
}

import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import { defineTool, type Tool, type ToolUser } from '../executions/engine/run/tools.ts'
import { excerpt } from '../lib/excerpt.ts'
import { decodeFile } from '../lib/file-type.ts'
import { FilePath, ListFiles, WriteFile } from './schema.ts'
import { edit, get, list, search, write } from './service.ts'

const MAX_ROWS = 200

/** Removes `./` from the beginning of a path, which models write as in a shell. */
const withoutDot = (path: string): string => path.replace(/^(?:\.\/+)+/, '')

/** The path of a file, and the beginning of paths, of which models write `.` or `/` for the whole space. */
const path = z
  .string()
  .overwrite(withoutDot)
  .pipe(FilePath.shape.path)
  .describe('Path of the file, such as docs/plan.md')
const prefix = z
  .string()
  .overwrite((text) => (text === '.' || text === '/' ? '' : withoutDot(text)))
  .pipe(ListFiles.shape.path.unwrap())
  .optional()
  .describe('Only files whose path begins with this text')

const listFiles = defineTool(
  'list_files',
  'Lists the files of the space, by path, a page at a time.',
  z.object({
    path: prefix,
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
  z.object({ path: path.pipe(WriteFile.shape.path), content: WriteFile.shape.content }),
)

const editFile = defineTool(
  'edit_file',
  'Replaces a text in a text file of the space. The text must occur exactly once, unless all is true.',
  z.object({
    path,
    find: z.string().min(1).describe('The text to replace, exactly as it stands in the file'),
    replace: z.string().describe('The new text'),
    all: z.boolean().default(false).describe('Replace every occurrence'),
  }),
)

const searchFiles = defineTool(
  'search_files',
  'Searches the text files of the space for a text, without regard to case. Returns the lines that contain it.',
  z.object({
    query: z.string().min(1).max(500),
    path: prefix,
    limit: z.int().min(1).max(MAX_ROWS).default(50).describe('Maximum number of lines'),
  }),
)

/** Creates the file tools, with the rights of the run's user within its scopes (contract.md sections 2 and 6). */
export function fileTools(deps: Deps, { row, actor }: ToolUser): Tool[] {
  const { spaceId: id } = row
  return [
    listFiles(async (input) => list(await actor('spaces:read'), deps, { id, ...input })),
    readFile(async ({ path, offset }) => {
      const { content, encoding } = await get(await actor('spaces:read'), deps, { id, path })
      const text = encoding === 'utf8' ? content : decodeFile(Buffer.from(content, encoding))?.text
      if (text === undefined) throw badRequest('The file is not text')
      return excerpt(text, offset)
    }),
    writeFile(async (input) => {
      const { path, size } = await write(await actor('spaces:write'), deps, { id, ...input })
      return `Wrote ${path}: ${size} bytes`
    }),
    editFile(async (input) => {
      const { path, size, count } = await edit(await actor('spaces:write'), deps, { id, ...input })
      return `Changed ${path} in ${count} ${count === 1 ? 'place' : 'places'}: ${size} bytes`
    }),
    searchFiles(async (input, { signal }) => search(await actor('spaces:read'), deps, { id, signal, ...input })),
  ]
}

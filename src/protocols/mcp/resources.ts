import { type McpServer, ResourceNotFoundError, ResourceTemplate } from '@modelcontextprotocol/server'
import { decodePosition, encodePosition } from '../../lib/page.ts'
import { createCaller } from '../../router.ts'
import type { Context } from '../../trpc.ts'
import { fromTRPCError } from '../../trpc-errors.ts'

// Files of spaces as resources (contract-2.md section 6.1).

const PAGE = 100

/** Maximum number of spaces that one page of the list looks into. */
const MAX_SPACES = 20

const TEMPLATE = 'muster://spaces/{spaceId}/files/{+path}'

const uriOf = (spaceId: string, path: string): string =>
  `muster://spaces/${spaceId}/files/${path.split('/').map(encodeURIComponent).join('/')}`

/** The place where a list continues. */
type Place = { spaceId: string; cursor?: string }

/** Offers the files of the caller's spaces on a server. Comes after whatever else offers resources. */
export function addResources(mcp: McpServer, context: Context): void {
  const caller = createCaller(context)

  mcp.registerResource(
    'space-file',
    new ResourceTemplate(TEMPLATE, { list: undefined }),
    { title: 'File of a space', description: 'A file of a space of your organization' },
    async (uri) => {
      const [, id = '', path = ''] = /^\/\/?([^/]*)\/files\/(.+)$/.exec(`/${uri.pathname.slice(1)}`) ?? []
      try {
        const file = await caller.files.get({ id: decodeURIComponent(id), path: decodeURIComponent(path) })
        const mimeType = typeOf(file.path, file.encoding)
        const body = file.encoding === 'utf8' ? { text: file.content } : { blob: file.content }
        return { contents: [{ uri: uri.href, mimeType, ...body }] }
      } catch (error) {
        if (error instanceof URIError || [400, 404].includes(fromTRPCError(error).status)) {
          throw new ResourceNotFoundError(uri.href)
        }
        throw error
      }
    },
  )

  mcp.server.setRequestHandler('resources/list', async ({ params }) => {
    const { spaces } = await caller.spaces.list({})
    const start = decode(params?.cursor)
    const first = start ? spaces.findIndex(({ id }) => id === start.spaceId) : 0
    const resources: object[] = []
    let next: Place | undefined
    for (const [index, space] of spaces.slice(Math.max(first, 0)).entries()) {
      if (index === MAX_SPACES || resources.length === PAGE) {
        next = { spaceId: space.id }
        break
      }
      const cursor = space.id === start?.spaceId ? start.cursor : undefined
      const page = { limit: PAGE - resources.length, ...(cursor !== undefined && { cursor }) }
      const { files, nextCursor } = await caller.files.list({ id: space.id, ...page })
      for (const { path, size, updatedAt } of files) {
        const name = path.split('/').at(-1)!
        resources.push({
          uri: uriOf(space.id, path),
          name,
          title: `${space.name}: ${path}`,
          size,
          mimeType: typeOf(path),
          annotations: { lastModified: updatedAt },
        })
      }
      if (nextCursor !== null) {
        next = { spaceId: space.id, cursor: nextCursor }
        break
      }
    }
    return { resources: resources as never, ...(next && { nextCursor: encode(next) }) }
  })
}

const encode = (place: Place): string => encodePosition(JSON.stringify(place))

/** Decodes a cursor. A cursor that is none starts anew, as one does whose space is gone. */
function decode(cursor: string | undefined): Place | null {
  if (cursor === undefined) return null
  try {
    const { spaceId, cursor: rest } = JSON.parse(decodePosition(cursor))
    return typeof spaceId === 'string' ? { spaceId, ...(typeof rest === 'string' && { cursor: rest }) } : null
  } catch {
    return null
  }
}

const TYPES: Readonly<Record<string, string>> = {
  md: 'text/markdown',
  html: 'text/html',
  csv: 'text/csv',
  json: 'application/json',
  yaml: 'application/yaml',
  png: 'image/png',
  jpg: 'image/jpeg',
  jpeg: 'image/jpeg',
  gif: 'image/gif',
  webp: 'image/webp',
  svg: 'image/svg+xml',
  pdf: 'application/pdf',
  xml: 'application/xml',
}

/** Guesses the media type of a file by the end of its name. */
const typeOf = (path: string, encoding: 'utf8' | 'base64' = 'utf8'): string =>
  TYPES[path.split('.').at(-1)?.toLowerCase() ?? ''] ??
  (encoding === 'utf8' ? 'text/plain' : 'application/octet-stream')

import type { Db } from '../db/client.ts'
import { notFound } from '../errors.ts'
import { builder, type GraphQLContext } from '../graphql/builder.ts'
import { connectionType, LIST_COST, PATHS, toConnection } from '../graphql/connection.ts'
import { fromCursor, type Order } from '../graphql/cursor.ts'
import { Deletion } from '../graphql/deletion.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { readKeyed } from '../graphql/lists.ts'
import { loadOne } from '../graphql/loader.ts'
import { NOTHING, pageOf, partOf, RELATION_ROWS, RelationArgs } from '../graphql/page.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { rowsOf, selectRows } from '../graphql/rows.ts'
import { MAX_PAGE_BYTES } from '../lib/page.ts'
import { Space } from '../spaces/graphql.ts'
import { find as findSpace } from '../spaces/service.ts'
import { files } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Encoding = enumFromZod('FileEncoding', schema.Encoding, 'Encoding of the content of a file')
const { content, encoding } = schema.FileResponse.shape

const BY_PATH = [['path', 'asc']] as const

// Files are visible to everyone who can reach the space.
const FILE = rowsOf<Key>('SpaceFile', 'SpaceFile', () => ({}), { order: BY_PATH, key: ['spaceId', 'path'] })

type Key = { spaceId: string; path: string }

const texts = new WeakMap<Uint8Array, ReturnType<typeof service.toText>>()

/** Decodes the content once, for any number of aliases. */
function textOf(content: Uint8Array) {
  const text = texts.get(content) ?? service.toText(content)
  texts.set(content, text)
  return text
}

const SpaceFile = builder.prismaObject('SpaceFile', {
  description: 'A file of a space',
  select: { spaceId: true, path: true },
  extensions: { scopes: ['spaces:read'], like: schema.SpaceFile.extend({ content, encoding }) },
  fields: (t) => ({
    path: t.exposeString('path', { description: 'Path of the file, such as `docs/plan.md`' }),
    size: t.exposeInt('size'),
    updatedAt: t.expose('updatedAt', { type: 'DateTime' }),
    content: t.string({
      description: 'Content of the file',
      extensions: { cost: 10 },
      select: { content: true },
      resolve: (row) => textOf(row.content).content,
    }),
    encoding: t.field({
      type: Encoding,
      extensions: { cost: 10 },
      select: { content: true },
      resolve: (row) => textOf(row.content).encoding,
    }),
  }),
})

const SpaceFiles = connectionType('SpaceFile', SpaceFile, 'files of a space, by path')
const ListArgs = schema.ListFiles.pick({ path: true }).extend(RelationArgs.shape)

builder.prismaObjectFields(Space, (t) => ({
  files: t.field({
    type: SpaceFiles,
    description: 'Files, by path',
    nullable: true,
    args: argsFromZod(ListArgs),
    extensions: { rows: RELATION_ROWS, cost: LIST_COST, procedure: files.list },
    resolve: async ({ id }, args, context, info) => {
      const { path: prefix = '', ...given } = parseArgs(ListArgs, args)
      const page = pageOf(given, RELATION_ROWS)
      const from = page.after === undefined ? '' : String(fromCursor(BY_PATH, page.after)[0])
      const to = page.before === undefined ? null : String(fromCursor(BY_PATH, page.before, 'before')[0])
      const query = selectRows(context, info, FILE, PATHS)
      const list = await loadOne(context, info, id, async (ids) => {
        const lists = Map.groupBy(await pathsIn(context, ids), ({ spaceId }) => spaceId)
        const pages = ids.map((id) => {
          const all = service.inOrder(lists.get(id) ?? [], prefix, '')
          const after = service.inOrder(all, prefix, from)
          const end = to === null ? -1 : after.findIndex(({ path }) => path >= to)
          const range = end === -1 ? after : after.slice(0, end)
          const files = page.backwards ? range.reverse().slice(0, page.take + 1) : range.slice(0, page.take + 1)
          return { id, all, files }
        })
        const keys = pages.map(({ files }) => ('content' in query.select ? takeFilesWithinBudget(files) : files))
        const found = await readKeyed(context.deps.db, FILE, keys, FILE.key, query)
        const rows = new Map(found.map((row) => [keyOf(row), row]))
        return new Map(
          pages.map(({ id, all, files }) => {
            const found = files.flatMap((row) => rows.get(keyOf(row)) ?? [])
            return [id, { all, ...partOf(found, page) }]
          }),
        )
      })
      const all = list?.all ?? []
      // All paths are loaded, so no filter is needed.
      const exists = async (order: Order) =>
        all.some(({ path }) => (order[0]?.[1] === 'asc' ? to !== null && path >= to : path <= from))
      return toConnection(list ?? NOTHING, page, BY_PATH, () => all.length, exists)
    },
  }),
}))

/**
 * Reads all paths of some spaces with the file sizes (their number is limited), because the databases sort paths
 * differently, as in `list`.
 */
const pathsIn = ({ deps }: GraphQLContext, ids: string[]) =>
  deps.db.spaceFile.findMany({ where: { spaceId: { in: ids } }, select: { spaceId: true, path: true, size: true } })

/** Returns the files whose contents may fit in a page, and one more. */
function takeFilesWithinBudget<File extends { size: number }>(page: readonly File[]): readonly File[] {
  let bytes = 0
  const end = page.findIndex(({ size }) => {
    bytes += size
    return bytes > MAX_PAGE_BYTES
  })
  return end === -1 ? page : page.slice(0, end + 2)
}

const keyOf = ({ spaceId, path }: Key) => `${spaceId} ${path}`

/** Reads the selected columns of a file. Throws 404 if it does not exist. */
async function findFile(db: Db, query: object, key: Key) {
  const row = await db.spaceFile.findUnique({ ...query, where: { spaceId_path: key } })
  if (!row) throw notFound('File')
  return row
}

builder.queryField('spaceFile', (t) =>
  t.prismaField({
    ...procedureExtensions(files.get),
    type: SpaceFile,
    nullable: true,
    args: argsFromZod(schema.FilePath),
    resolve: async (query, _, args, { actor, deps }) => {
      const { id, path } = parseArgs(schema.FilePath, args)
      const { id: spaceId } = await findSpace(actor, deps, id)
      return findFile(deps.db, query, { spaceId, path })
    },
  }),
)

builder.mutationFields((t) => ({
  writeSpaceFile: t.prismaField({
    ...procedureExtensions(files.write),
    type: SpaceFile,
    args: argsFromZod(schema.WriteFile),
    resolve: async (query, _, args, { caller, deps }) => {
      const { path } = await caller.files.write(args)
      return findFile(deps.db, query, { spaceId: args.id, path })
    },
  }),
  deleteSpaceFile: t.field({
    ...procedureExtensions(files.delete),
    args: argsFromZod(schema.FilePath),
    type: Deletion,
    resolve: async (_, args, { caller }) => ({ deletedId: args.path, ...(await caller.files.delete(args)) }),
  }),
}))

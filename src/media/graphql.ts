import { notFound } from '../errors.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, parseArgs } from '../graphql/inputs.ts'
import { CURSOR_COLUMNS, pageType, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { media } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Media = builder.prismaObject('Media', {
  description: 'An uploaded file. Its bytes go over REST',
  select: { id: true },
  extensions: { scopes: ['media:read'], like: schema.Media },
  fields: (t) => ({
    id: t.exposeID('id'),
    name: t.exposeString('name'),
    mimeType: t.exposeString('mimeType'),
    size: t.exposeInt('size'),
    organizationId: t.exposeID('organizationId'),
    userId: t.exposeID('userId'),
    url: t.string({ resolve: ({ id }) => service.contentUrl(id) }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
  }),
})

const MediaPage = pageType('MediaPage', Media, 'A page of uploaded files, newest first')

builder.queryFields((t) => ({
  media: t.field({
    ...shows(media.list, { rows: 1000 }),
    type: MediaPage,
    args: argsFromZod(schema.ListMedia),
    resolve: (_, args, context, info) => {
      const { db } = context.deps
      const input = parseArgs(schema.ListMedia, args)
      const where = service.reachable(context.actor)
      const rows = selectRows(context, info, { type: 'Media', path: ['nodes'], columns: CURSOR_COLUMNS })
      return readPage(
        input,
        where,
        (page) => db.media.findMany({ ...rows, ...page }),
        () => db.media.count({ where }),
      )
    },
  }),
  mediaFile: t.prismaField({
    ...shows(media.get),
    type: Media,
    nullable: true,
    args: argsFromZod(schema.MediaId),
    resolve: async (query, _, args, { actor, deps }) => {
      const { id } = parseArgs(schema.MediaId, args)
      const row = await deps.db.media.findFirst({ ...query, where: { id, ...service.reachable(actor) } })
      if (!row) throw notFound('Media')
      return row
    },
  }),
}))

builder.mutationField('deleteMedia', (t) =>
  t.string({
    ...shows(media.delete),
    args: argsFromZod(schema.MediaId),
    resolve: async (_, args, { caller }) => (await caller.media.delete(args)).message,
  }),
)

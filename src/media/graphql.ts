import { builder } from '../graphql/builder.ts'
import { connectionType, rootList } from '../graphql/connection.ts'
import { deleteRow } from '../graphql/mutations.ts'
import { nodeOf } from '../graphql/node.ts'
import { rootRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { USER, User } from '../organizations/graphql.ts'
import { media } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const MEDIA = rowsOf('Media', 'Media', service.reachable, { name: 'Media' })

const Media = builder.prismaObject('Media', {
  description: 'An uploaded file. Its bytes go over REST',
  interfaces: nodeOf(MEDIA),
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
    user: t.field(rowIn(User, USER, 'userId', 'User who uploaded the file')),
  }),
})

const MediaFiles = connectionType('Media', Media, 'uploaded files, newest first')

builder.queryFields((t) => ({
  media: t.field(rootList(MediaFiles, MEDIA, media.list, schema.ListMedia, ({ actor }) => service.reachable(actor))),
  mediaFile: t.field(rootRow(Media, MEDIA, media.get, schema.MediaId)),
}))

builder.mutationField('deleteMedia', (t) =>
  t.field(deleteRow(media.delete, schema.MediaId, (caller, args) => caller.media.delete(args))),
)

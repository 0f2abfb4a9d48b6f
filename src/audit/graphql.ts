import { builder } from '../graphql/builder.ts'
import { connectionType, rootList } from '../graphql/connection.ts'
import { enumFromZod } from '../graphql/inputs.ts'
import { loadOne } from '../graphql/loader.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { rowsOf } from '../graphql/rows.ts'
import { audit } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

type Row = { organizationId: string; at: Date; id: string }

const EVENT = rowsOf<Row>('AuditEvent', 'AuditEvent', service.reachable, {
  order: [
    ['at', 'desc'],
    ['id', 'desc'],
  ],
})

enumFromZod('ActorKind', schema.ActorKind, 'The kind of an actor')
const AuditActor = objectFromZod('AuditActor', schema.AuditActor, 'The cause of an audit event')

const AuditEvent = builder.prismaObject('AuditEvent', {
  description: 'A change in your organization',
  select: { organizationId: true, at: true, id: true },
  extensions: { scopes: ['audit:read'], like: schema.AuditEvent },
  fields: (t) => ({
    id: t.exposeID('id'),
    at: t.expose('at', { type: 'DateTime' }),
    action: t.exposeString('action'),
    target: t.exposeString('target'),
    ip: t.exposeString('ip', { nullable: true }),
    requestId: t.exposeID('requestId', { nullable: true }),
    changes: t.field({ type: 'JSON', nullable: true, select: { changes: true }, resolve: service.toChanges }),
    actor: t.field({
      type: AuditActor,
      select: { actor: true, tokenId: true },
      resolve: async (row, _, context, info) => {
        const found = await loadOne(context, info, row.actor, (ids) => service.findActors(context.deps.db, ids))
        return service.toActor(row, new Map(found ? [[row.actor, found]] : []))
      },
    }),
  }),
})

const AuditEvents = connectionType('AuditEvent', AuditEvent, 'audit events, newest first')

builder.queryField('auditEvents', (t) =>
  t.field(
    rootList(AuditEvents, EVENT, audit.list, schema.ListAudit, ({ actor }, input) => service.listedBy(actor, input)),
  ),
)

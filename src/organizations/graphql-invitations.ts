import type { z } from 'zod'
import { builder } from '../graphql/builder.ts'
import { connectionType, rootList } from '../graphql/connection.ts'
import { Deletion } from '../graphql/deletion.ts'
import { argsFromZod, inputFromZod } from '../graphql/inputs.ts'
import { objectFromZod } from '../graphql/outputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { rowsOf } from '../graphql/rows.ts'
import { administered } from './details.ts'
import { Role } from './graphql.ts'
import * as service from './invitations.ts'
import { organizations } from './router.ts'
import * as schema from './schema.ts'

const extensions = { scopes: ['members:read'] as const }

const INVITATION = rowsOf<{ id: string; createdAt: Date }>('Invitation', 'Invitation', (actor) =>
  service.openInvitations(actor, new Date(0)),
)

const Invitation = builder.prismaObject('Invitation', {
  description: 'An open invitation',
  select: { id: true, createdAt: true },
  extensions: { ...extensions, like: schema.Invitation },
  fields: (t) => ({
    id: t.exposeID('id'),
    email: t.exposeString('email'),
    role: t.expose('role', { type: Role }),
    createdBy: t.exposeID('createdBy'),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    expiresAt: t.expose('expiresAt', { type: 'DateTime' }),
  }),
})

const Invitations = connectionType('Invitation', Invitation, 'open invitations, newest first')
const CreatedInvitation = objectFromZod('CreatedInvitation', schema.Invitation, 'The new invitation')
const CreateInput = inputFromZod('CreateInvitationInput', schema.CreateInvitation, 'An invitation')

type Created = { url: string | null; mailed: boolean; invitation: z.output<typeof schema.Invitation> }
const CreatePayload = builder.objectRef<Created>('CreateInvitationPayload').implement({
  description: 'A new invitation and its link',
  fields: (t) => ({
    url: t.exposeString('url', {
      nullable: true,
      description: 'The link, returned only once; null if it goes by mail only',
    }),
    mailed: t.exposeBoolean('mailed', { description: 'Whether a mail with the link is on its way' }),
    invitation: t.field({
      type: CreatedInvitation,
      description: 'The invitation',
      extensions: { scopes: ['members:write'] },
      resolve: ({ invitation }) => invitation,
    }),
  }),
})

builder.queryField('invitations', (t) =>
  t.field(
    rootList(Invitations, INVITATION, organizations.listInvitations, schema.ListInvitations, (context, { id }) => {
      administered(context.actor, id)
      return service.openInvitations(context.actor, context.deps.clock.now())
    }),
  ),
)

builder.mutationFields((t) => ({
  createInvitation: t.field({
    ...procedureExtensions(organizations.createInvitation),
    type: CreatePayload,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.organizations.createInvitation(input),
  }),
  deleteInvitation: t.field({
    ...procedureExtensions(organizations.deleteInvitation),
    type: Deletion,
    args: argsFromZod(schema.InvitationId),
    resolve: async (_, args, { caller }) => ({
      deletedId: args.invitationId,
      ...(await caller.organizations.deleteInvitation(args)),
    }),
  }),
}))

import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { CURSOR_COLUMNS, pageType, readPage } from '../graphql/page.ts'
import { shows } from '../graphql/procedures.ts'
import { selectRows } from '../graphql/select.ts'
import { approvals } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Status = enumFromZod('ApprovalStatus', schema.ApprovalStatus, 'Where an approval is')

const Approval = builder.prismaObject('Approval', {
  description: 'A call of a tool that waits for a person’s word, or did',
  select: { id: true },
  extensions: { scopes: ['approvals:read'], like: schema.Approval },
  fields: (t) => ({
    id: t.exposeID('id'),
    executionId: t.exposeID('executionId'),
    chatId: t.exposeID('chatId'),
    toolUseId: t.exposeID('toolUseId'),
    tool: t.exposeString('tool'),
    input: t.field({
      type: 'JSON',
      nullable: true,
      extensions: { cost: 50 },
      select: { input: true },
      resolve: ({ input }) => JSON.parse(input),
    }),
    status: t.expose('status', { type: Status }),
    reason: t.exposeString('reason', { nullable: true }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    expiresAt: t.expose('expiresAt', { type: 'DateTime' }),
    decidedBy: t.exposeID('decidedBy', { nullable: true }),
    decidedAt: t.expose('decidedAt', { type: 'DateTime', nullable: true }),
  }),
})

const ApprovalPage = pageType('ApprovalPage', Approval, 'A page of approvals, newest first')

builder.queryField('approvals', (t) =>
  t.field({
    ...shows(approvals.list, { rows: 1000 }),
    type: ApprovalPage,
    args: argsFromZod(schema.ListApprovals),
    resolve: (_, args, context, info) => {
      const { approval } = context.deps.db
      const input = parseArgs(schema.ListApprovals, args)
      const where = service.listedBy(context.actor, input)
      const rows = selectRows(context, info, { type: 'Approval', path: ['nodes'], columns: CURSOR_COLUMNS })
      return readPage(
        input,
        where,
        (page) => approval.findMany({ ...rows, ...page }),
        () => approval.count({ where }),
      )
    },
  }),
)

builder.mutationFields((t) => ({
  approveToolCall: t.prismaField({
    ...shows(approvals.approve),
    type: Approval,
    args: argsFromZod(schema.Decide),
    resolve: async (query, _, args, { caller, deps }) => {
      await caller.approvals.approve(args)
      return deps.db.approval.findUniqueOrThrow({ ...query, where: { id: args.id } })
    },
  }),
  denyToolCall: t.prismaField({
    ...shows(approvals.deny),
    type: Approval,
    args: argsFromZod(schema.Decide),
    resolve: async (query, _, args, { caller, deps }) => {
      await caller.approvals.deny(args)
      return deps.db.approval.findUniqueOrThrow({ ...query, where: { id: args.id } })
    },
  }),
}))

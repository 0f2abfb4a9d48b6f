import { CHAT, Chat } from '../chats/graphql.ts'
import { EXECUTION, Execution } from '../executions/graphql.ts'
import { builder } from '../graphql/builder.ts'
import { connectionType, relationList, rootList } from '../graphql/connection.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { changeRow } from '../graphql/mutations.ts'
import { nodeOf } from '../graphql/node.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { computedBy, loadRow, rowIn, rowsOf } from '../graphql/rows.ts'
import { parseExact } from '../lib/exact-json.ts'
import { USER, User } from '../organizations/graphql.ts'
import type { ApprovalChange } from './follow.ts'
import { approvals } from './router.ts'
import * as schema from './schema.ts'
import * as service from './service.ts'

const Status = enumFromZod('ApprovalStatus', schema.ApprovalStatus, 'The status of an approval')

const APPROVAL = rowsOf('Approval', 'Approval', service.reachable, { name: 'Approval' })

const computed = computedBy(APPROVAL, ({ actor, deps }, ids) => service.findMany(actor, deps, ids))

const Approval = builder.prismaObject('Approval', {
  description: "A tool call that waits for a person's decision, or has waited for one",
  interfaces: nodeOf(APPROVAL),
  select: { id: true },
  extensions: { scopes: ['approvals:read'], like: schema.Approval },
  fields: (t) => ({
    id: t.exposeID('id'),
    executionId: t.exposeID('executionId'),
    chatId: t.exposeID('chatId'),
    userId: t.id({ resolve: computed('userId') }),
    agentId: t.id({ resolve: computed('agentId') }),
    agentName: t.string({ nullable: true, resolve: computed('agentName') }),
    chatTitle: t.string({ nullable: true, resolve: computed('chatTitle') }),
    missionId: t.id({ nullable: true, resolve: computed('missionId') }),
    taskId: t.id({ nullable: true, resolve: computed('taskId') }),
    toolUseId: t.exposeID('toolUseId'),
    tool: t.exposeString('tool'),
    mcpId: t.exposeID('mcpId', { nullable: true }),
    mcpName: t.exposeString('mcpName', { nullable: true }),
    origin: t.exposeString('origin', { nullable: true }),
    description: t.exposeString('description', { nullable: true, extensions: { cost: 5 } }),
    editedInput: t.field({
      type: 'JSON',
      nullable: true,
      extensions: { cost: 10 },
      select: { editedInput: true },
      resolve: ({ editedInput }) => editedInput && parseExact(editedInput),
    }),
    editedBy: t.exposeID('editedBy', { nullable: true }),
    input: t.field({
      type: 'JSON',
      nullable: true,
      extensions: { cost: 10 },
      select: { input: true },
      resolve: ({ input }) => parseExact(input),
    }),
    status: t.expose('status', { type: Status }),
    reason: t.exposeString('reason', { nullable: true }),
    createdAt: t.expose('createdAt', { type: 'DateTime' }),
    expiresAt: t.expose('expiresAt', { type: 'DateTime' }),
    decidedBy: t.exposeID('decidedBy', { nullable: true }),
    decidedAt: t.expose('decidedAt', { type: 'DateTime', nullable: true }),
    execution: t.field(rowIn(Execution, EXECUTION, 'executionId', 'The run that waits, or has waited')),
    chat: t.field(rowIn(Chat, CHAT, 'chatId', 'The chat that the run is in')),
    decider: t.field(rowIn(User, USER, 'decidedBy', 'The user who decided')),
  }),
})

const Approvals = connectionType('Approval', Approval, 'approvals, newest first')

builder.prismaObjectFields(Execution, (t) => ({
  approvals: t.field(
    relationList(Approvals, APPROVAL, { column: 'executionId', description: 'Its approvals, newest first' }),
  ),
}))

builder.queryField('approvals', (t) =>
  t.field(
    rootList(Approvals, APPROVAL, approvals.list, schema.ListApprovals, ({ actor }, input) =>
      service.listedBy(actor, input),
    ),
  ),
)

builder.subscriptionField('approvalChanges', (t) =>
  t.field({
    ...procedureExtensions(approvals.changes),
    description: 'Approvals that runs ask for, and those that are decided or expire, each in its state at that time',
    type: Approval,
    nullable: true,
    args: argsFromZod(schema.FollowApprovals),
    // Refused before the first event, or not at all.
    subscribe: async (_, args, { caller }) =>
      idsOf(await caller.approvals.changes(parseArgs(schema.FollowApprovals, args))),
    // Each is read when it is taken.
    resolve: (id, _, context, info) => loadRow(context, info, APPROVAL, id) as never,
  }),
)

async function* idsOf(events: AsyncIterable<ApprovalChange>): AsyncGenerator<string> {
  for await (const { data } of events) yield data.approval.id
}

builder.mutationFields((t) => ({
  approveToolCall: t.field(
    changeRow(Approval, APPROVAL, approvals.approve, schema.Approve, (caller, args) => caller.approvals.approve(args)),
  ),
  denyToolCall: t.field(
    changeRow(Approval, APPROVAL, approvals.deny, schema.Deny, (caller, args) => caller.approvals.deny(args)),
  ),
}))

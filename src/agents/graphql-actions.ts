import { builder } from '../graphql/builder.ts'
import { inputFromZod } from '../graphql/inputs.ts'
import { changeRow, deleteRow } from '../graphql/mutations.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { loadRow, reload } from '../graphql/rows.ts'
import { AGENT, Agent } from './graphql.ts'
import { agents } from './router.ts'
import * as schema from './schema.ts'

// The aliases are for older REST clients.
const ALIAS = { system_message: true, characterDescription: true } as const

const CreateInput = inputFromZod('CreateAgentInput', schema.CreateAgent.omit(ALIAS), 'A new agent')
const UpdateInput = inputFromZod(
  'UpdateAgentInput',
  schema.UpdateAgent.omit(ALIAS),
  'Changes of an agent; absent fields are unchanged',
)

const CreatePayload = builder.objectRef<{ id: string; chatUrl: string }>('CreateAgentPayload').implement({
  description: 'A new agent and a chat with it',
  fields: (t) => ({
    chatUrl: t.exposeString('chatUrl', {
      description: 'Path of the chat: `/<organization>/spaces/<spaceId>/chats/<chatId>`',
    }),
    agent: t.field({
      type: Agent,
      description: 'The agent',
      resolve: ({ id }, _, context, info) => reload(context, info, AGENT, id),
    }),
  }),
})

const ChangePayload = builder.objectRef<{ id: string; message: string }>('ChangeAgentPayload').implement({
  description: 'Result of a change',
  fields: (t) => ({
    message: t.exposeString('message', { description: 'For people' }),
    agent: t.field({
      type: Agent,
      nullable: true,
      description: 'The agent after the change; null if it was archived meanwhile',
      resolve: ({ id }, _, context, info) => loadRow(context, info, AGENT, id),
    }),
  }),
})

builder.mutationFields((t) => ({
  createAgent: t.field({
    ...procedureExtensions(agents.create),
    type: CreatePayload,
    args: { input: t.arg({ type: CreateInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.agents.create(input),
  }),
  updateAgent: t.field({
    ...procedureExtensions(agents.update),
    type: ChangePayload,
    args: { input: t.arg({ type: UpdateInput, required: true }) },
    resolve: async (_, { input }, { caller }) => ({ id: input.id, ...(await caller.agents.update(input)) }),
  }),
  updateAgentSkill: t.field(
    changeRow(Agent, AGENT, agents.updateSkill, schema.AgentSkill, (caller, args) => caller.agents.updateSkill(args)),
  ),
  deleteAgent: t.field(deleteRow(agents.delete, schema.AgentId, (caller, args) => caller.agents.delete(args))),
}))

import type { z } from 'zod'
import { agents } from '../agents/router.ts'
import { chats } from '../chats/router.ts'
import { SendMessage } from '../chats/schema.ts'
import { builder } from '../graphql/builder.ts'
import { argsFromZod, enumFromZod, inputFromZod } from '../graphql/inputs.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { reload } from '../graphql/rows.ts'
import { EXECUTION, Execution, Status, Warning } from './graphql.ts'
import { executions } from './router.ts'
import * as schema from './schema.ts'

enumFromZod('OnBusy', schema.Execute.shape.onBusy, 'Handling of a message while the session is busy')
enumFromZod('OnDisconnect', schema.Execute.shape.onDisconnect, 'Handling of the run when the caller disconnects')

const ExecuteInput = inputFromZod(
  'ExecuteAgentInput',
  schema.Execute.omit({ stream: true, content: true }),
  'A message for an agent. To follow the run, use `background` and subscribe to `executionEvents`',
)

const ExecuteAnyInput = inputFromZod(
  'ExecuteInput',
  schema.ExecuteAny.omit({ stream: true, content: true, characterId: true }),
  'A message for an agent: the named one, else your newest one, else your private agent `Assistant`',
)

const SendInput = inputFromZod(
  'SendMessageInput',
  SendMessage.omit({ stream: true, content: true }),
  'A message for the agent of a chat. To follow the run, use `background` and subscribe to `chatEvents`',
)

const RerunInput = inputFromZod(
  'RerunExecutionInput',
  schema.Rerun.omit({ stream: true, content: true }),
  'Options for running an agent again on the message of an execution',
)

const ExecutePayload = builder.objectRef<z.output<typeof schema.Executed>>('ExecuteAgentPayload').implement({
  description: 'A run that was accepted and, unless it is in the background, has completed',
  fields: (t) => ({
    executionId: t.exposeID('executionId', { description: 'The run' }),
    chatId: t.exposeID('chatId', { description: 'Chat of the run, to continue' }),
    sessionId: t.exposeID('sessionId', { description: 'Session of the run, to continue' }),
    status: t.expose('status', { type: Status, description: 'State of the run' }),
    result: t.exposeString('result', { nullable: true, description: 'The answer, unless it is in the background' }),
    resultObject: t.field({
      type: 'JSON',
      nullable: true,
      description: 'The parsed answer, if an output schema was given',
      resolve: ({ resultObject = null }) => resultObject,
    }),
    stopReason: t.exposeString('stopReason', {
      nullable: true,
      description: 'Reason for the end, unless it is in the background',
    }),
    warnings: t.field({
      type: [Warning],
      nullable: true,
      description: 'Warnings about missing features, unless it is in the background',
      extensions: { rows: 3 },
      resolve: ({ warnings = null }) => warnings,
    }),
    execution: t.field({
      type: Execution,
      description: 'The run',
      extensions: { scopes: ['executions:read', 'agents:execute'] },
      resolve: ({ executionId }, _, context, info) => reload(context, info, EXECUTION, executionId),
    }),
  }),
})

const CancelPayload = builder.objectRef<{ id: string; message: string }>('CancelExecutionPayload').implement({
  description: 'Result of a cancellation',
  fields: (t) => ({
    message: t.exposeString('message', { description: 'For people' }),
    execution: t.field({
      type: Execution,
      description: 'The run after the cancellation',
      extensions: { scopes: ['executions:read', 'agents:execute'] },
      resolve: ({ id }, _, context, info) => reload(context, info, EXECUTION, id),
    }),
  }),
})

builder.mutationFields((t) => ({
  executeAgent: t.field({
    ...procedureExtensions(agents.execute),
    type: ExecutePayload,
    args: { input: t.arg({ type: ExecuteInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.agents.execute(input),
  }),
  execute: t.field({
    ...procedureExtensions(executions.create),
    type: ExecutePayload,
    args: { input: t.arg({ type: ExecuteAnyInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.executions.create(input),
  }),
  sendMessage: t.field({
    ...procedureExtensions(chats.send),
    type: ExecutePayload,
    args: { input: t.arg({ type: SendInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.chats.send(input),
  }),
  rerunExecution: t.field({
    ...procedureExtensions(executions.rerun),
    type: ExecutePayload,
    args: { input: t.arg({ type: RerunInput, required: true }) },
    resolve: (_, { input }, { caller }) => caller.executions.rerun(input),
  }),
  cancelExecution: t.field({
    ...procedureExtensions(executions.cancel),
    type: CancelPayload,
    args: argsFromZod(schema.ExecutionId),
    resolve: async (_, { id }, { caller }) => ({ id, message: (await caller.executions.cancel({ id })).message }),
  }),
}))

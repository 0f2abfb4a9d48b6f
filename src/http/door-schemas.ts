import { z } from 'zod'
import { Execute } from '../executions/schema.ts'

// The bodies of the doors under /api/v1, which the OpenAPI document describes.

/** Maximum length of a client's own name of a conversation (characters). */
export const MAX_NAME = 255

const parts = z
  .array(z.looseObject({ type: z.string().describe('Kind of the part') }))
  .max(5_000)
  .describe(
    'Its parts, each with a `type`: `text` with a `text`, `file` with a `data:` URL as `url`, and calls of tools',
  )

/** A message as `useChat` keeps it. Parts without content for an agent are ignored. */
export const UIMessage = z
  .object({
    id: z.string().nullish().describe("The client's id of the message"),
    role: z.enum(['system', 'user', 'assistant']).describe('Author of the message'),
    parts,
  })
  .meta({ id: 'UIMessage', description: 'A message of the AI SDK' })

/** The body that `DefaultChatTransport` sends, with what a page may add to it. */
export const ChatRequest = z.object({
  id: z.string().min(1).max(MAX_NAME).nullish().describe("The client's id of the chat, under which it continues"),
  messages: z.array(UIMessage).max(5_000).nullish().describe('All messages of the chat, the last one to be answered'),
  message: UIMessage.nullish().describe('The last message alone: the service has the others'),
  trigger: z.string().nullish().describe('`regenerate-message` answers the last message again, in a branch'),
  tools: z
    .union([z.array(z.unknown()), z.record(z.string(), z.unknown())])
    .nullish()
    .describe('Functions of the page: a list in the form of OpenAI, or an object by their names'),
  system: z.string().max(100_000).nullish().describe("Instructions of the page, which come after the agent's prompt"),
  ...Execute.pick({ spaceId: true, model: true, modelSettings: true, fallbackModels: true, mediaIds: true }).shape,
})

const content = z
  .union([
    z.string(),
    z.array(z.looseObject({ type: z.string().describe('Kind of the part') })),
    z.record(z.string(), z.unknown()),
  ])
  .nullish()
  .describe('Its text, or its parts. Messages of other roles may have an object')

/** The input of a run of AG-UI. State and forwarded properties are the client's own. */
export const RunAgentInput = z.object({
  threadId: z.string().min(1).max(MAX_NAME).describe("The client's id of the conversation, under which it continues"),
  runId: z.string().min(1).max(MAX_NAME).describe("The client's id of the run, which the events repeat"),
  messages: z
    .array(
      z.looseObject({
        id: z.string().describe("The client's id of the message"),
        role: z.string().describe('Author of the message: `user`, `assistant`, `tool`, `system` or `developer`'),
        content,
      }),
    )
    .max(5_000)
    .describe('All messages of the conversation, the last one to be answered'),
  tools: z
    .array(z.looseObject({ name: z.string().describe('Name of the function') }))
    .nullish()
    .describe('Functions of the client, each with `name`, `description` and `parameters`'),
  context: z
    .array(
      z.object({ description: z.string().describe('Description of the text'), value: z.string().describe('The text') }),
    )
    .nullish()
    .describe('Texts that come after the prompt of the agent'),
  resume: z
    .array(
      z.object({
        interruptId: z.string().describe('Id of an interrupt: an approval that the run waits for'),
        status: z.enum(['resolved', 'cancelled']).describe('Whether a person has decided; `cancelled` denies'),
        payload: z.unknown().optional().describe('`{approved, reason?, input?}`'),
      }),
    )
    .nullish()
    .describe('Answers to the interrupts of an earlier run, which continues'),
})

/** The events of the streams, of which each protocol has its own types. */
export const UIMessageChunk = z
  .looseObject({ type: z.string().describe('Kind of the chunk: `start`, `text-delta`, `finish` and others') })
  .meta({ id: 'UIMessageChunk', description: "A chunk of the AI SDK's UI message stream, version 1" })
export const AgUiEvent = z
  .looseObject({ type: z.string().describe('Kind of the event: `RUN_STARTED`, `TEXT_MESSAGE_CONTENT` and others') })
  .meta({ id: 'AgUiEvent', description: 'An event of AG-UI 1.0' })

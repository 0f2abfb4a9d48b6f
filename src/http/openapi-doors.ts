import { z } from 'zod'
import type { ZodOpenApiPathsObject } from 'zod-openapi'
import { DOOR_ROUTES } from './door-routes.ts'
import { AgUiEvent, ChatRequest, RunAgentInput, UIMessageChunk } from './door-schemas.ts'

// The doors under /api/v1 in the OpenAPI document. The others have documents of their own protocols.

const CHAT = '/api/v1/agents/{id}/chat'
const CHAT_STREAM = '/api/v1/agents/{id}/chat/{chatId}/stream'
const AG_UI = '/api/v1/agents/{id}/ag-ui'

/** The addresses of the doors as operations: name, method, path and scopes. */
export const DOOR_OPERATIONS = DOOR_ROUTES.flatMap(({ path, methods }) => {
  const name = { [CHAT]: 'agents.chat', [CHAT_STREAM]: 'agents.resumeChat', [AG_UI]: 'agents.agUi' }[path]
  return Object.entries(methods).flatMap(([method, scopes]) =>
    name === undefined ? [] : { name, method, path, meta: { scopes: [...scopes] }, inputs: [] },
  )
})

const id = z.string().describe('The agent: its id, `<organization slug>/<agent slug>` encoded, or a unique name')

const CHUNKS = {
  description:
    'An event stream without names and ids. The schema is that of the `data` of each event; the last one is `[DONE]`.',
  content: {
    'text/event-stream': {
      schema: UIMessageChunk,
      example: { type: 'text-delta', id: 'text_1_1', delta: 'Hello' },
    },
  },
}

export const DOOR_PATHS: ZodOpenApiPathsObject = {
  [CHAT]: {
    post: {
      summary: 'Chat with an agent from the AI SDK',
      description:
        "Answers the requests of the AI SDK's `useChat` with a UI message stream. The run continues if the connection ends.",
      requestParams: { path: z.object({ id }) },
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema: ChatRequest,
            example: { id: 'chat-1', messages: [{ id: '1', role: 'user', parts: [{ type: 'text', text: 'Hello' }] }] },
          },
        },
      },
      responses: { 200: CHUNKS },
    },
  },
  [CHAT_STREAM]: {
    get: {
      summary: 'Resume an answer for the AI SDK',
      description: 'Replays the current answer in a chat from its start, and then streams the rest.',
      requestParams: {
        path: z.object({ id, chatId: z.string().describe("The client's id of the chat") }),
      },
      responses: { 200: CHUNKS, 204: { description: 'The chat has no current answer' } },
    },
  },
  [AG_UI]: {
    post: {
      summary: 'Run an agent from AG-UI',
      description: 'Answers the requests of AG-UI 1.0. The run continues if the connection ends.',
      requestParams: { path: z.object({ id }) },
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema: RunAgentInput,
            example: { threadId: 'thread-1', runId: 'run-1', messages: [{ id: '1', role: 'user', content: 'Hello' }] },
          },
        },
      },
      responses: {
        200: {
          description: 'An event stream without names and ids. The schema is that of the `data` of each event.',
          content: {
            'text/event-stream': {
              schema: AgUiEvent,
              example: { type: 'RUN_STARTED', threadId: 'thread-1', runId: 'run-1' },
            },
          },
        },
      },
    },
  },
}

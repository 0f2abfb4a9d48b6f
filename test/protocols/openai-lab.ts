import OpenAI, { APIError } from 'openai'
import { expect } from 'vitest'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/** Starts a server with a scripted model, and returns what tests of OpenAI's door do with both. */
export async function startOpenAILab() {
  const model = await use(startModelServer())
  const server = await use(startServer({ ...model.env, TRUST_PROXY: 'false' }))
  const { ann, eve } = await server.people('ann', 'eve')
  return {
    model,
    server,
    ann,
    eve,

    /** Creates an agent with a name of its own. */
    async create(fields: object = {}, { token } = ann) {
      const body = { name: `Ada ${crypto.randomUUID()}`, systemPrompt: 'You are Ada.', ...fields }
      return (await request(server, 'POST', '/api/v1/agents', { body, token })).body
    },

    clientOf: ({ token } = ann, headers: Record<string, string> = {}) =>
      new OpenAI({ baseURL: `${server.url}/openai/v1`, apiKey: token, maxRetries: 0, defaultHeaders: headers }),

    /** The messages of the last request to the model, as `role: content`. */
    asked: () => model.requests.at(-1)?.body.messages.map(({ role, content }) => `${role}: ${content}`),

    executions: async (token = ann.token) =>
      (await request(server, 'GET', '/api/v1/executions', { token })).body.executions as {
        sessionId: string
        id: string
        message: string
      }[],

    async messagesOf(chatId: string, query = '') {
      const { body } = await request(server, 'GET', `/api/v1/chats/${chatId}/messages${query}`, { token: ann.token })
      return body.messages.map(({ role, content }: { role: string; content: string }) => `${role}: ${content}`)
    },
  }
}

export const text = ({ choices: [choice] }: OpenAI.Chat.ChatCompletion) => choice?.message.content

export const failureOf = async (work: Promise<unknown>): Promise<APIError> => {
  const error = await work.then(
    () => null,
    (thrown) => thrown,
  )
  expect(error).toBeInstanceOf(APIError)
  return error
}

export const TOOL = {
  type: 'function' as const,
  function: {
    name: 'get_weather',
    description: 'Weather of a city',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}

export const namesOf = (tools: readonly unknown[] = []) => tools.map((one) => (one as typeof TOOL).function.name)

export const user = (content: string) => ({ role: 'user' as const, content })
export const assistant = (content: string) => ({ role: 'assistant' as const, content })

import type { Ids, Kind } from '../security/fixtures.ts'

/** Requests to every address of the doors, for the matrices. */

/** Ids of a member's things: the caller's own, but for one of another member. */
export type Things = Required<Ids>

export type Asking = { path: string; body?: object; headers?: Record<string, string> }

export type Case = {
  /** A request about the given things. */
  ask: (things: Things) => Asking
  /** The kinds of ids that requests take, each with a request that takes one, if `ask` does not. */
  takes: readonly (readonly [kind: Kind, ask?: Case['ask']])[]
  /** A request that starts a run, with an idempotency key and a message. */
  run?: (things: Things, key: string, message: string) => Asking
  /** The audit event of the request; of a run it is `agent.execute`. */
  audit?: string
}

const keyed = (key: string) => ({ 'Idempotency-Key': key })

const complete = ({ agent }: Things, message = 'Hi') => ({
  path: '/openai/v1/chat/completions',
  body: { model: agent, messages: [{ role: 'user', content: message }] },
})
const respond = ({ agent }: Things, more: object = {}, input = 'Hi') => ({
  path: '/openai/v1/responses',
  body: { model: agent, input, ...more },
})

const user = (text: string) => ({ id: '1', role: 'user', parts: [{ type: 'text', text }] })
const chat = ({ agent }: Things, more: object = {}, text = 'Hi') => ({
  path: `/api/v1/agents/${agent}/chat`,
  body: { messages: [user(text)], ...more },
})
const agUi = ({ agent }: Things, more: object = {}, content = 'Hi') => ({
  path: `/api/v1/agents/${agent}/ag-ui`,
  body: { threadId: `thread of ${agent}`, runId: 'r', messages: [{ id: '1', role: 'user', content }], ...more },
})

const ACCEPT = { Accept: 'application/json, text/event-stream' }
const rpc = (method: string, params: object) => ({ jsonrpc: '2.0', id: 1, method, params })
const tool = (path: string, name: string, args: object) => ({
  path,
  headers: ACCEPT,
  body: rpc('tools/call', { name, arguments: args }),
})
const a2a = ({ agent }: Things, method: string, params: object) => ({
  path: `/a2a/agents/${agent}`,
  headers: { 'A2A-Version': '1.0' },
  body: rpc(method, params),
})
const push = (things: Things, verb: string, fields: object = {}) =>
  a2a(things, `${verb}TaskPushNotificationConfig${verb === 'List' ? 's' : ''}`, { taskId: things.execution, ...fields })
const send = (things: Things, message: object, text = 'Hi') =>
  a2a(things, 'SendMessage', { message: { messageId: 'm', role: 'ROLE_USER', parts: [{ text }], ...message } })

/** The id of a call that a client of a run's own tools answers. */
const callId = ({ execution }: Things) => `call_${execution}_1_a`

/** Every method of every address. A missing case fails in matrix.test.ts. */
export const CASES: Readonly<Record<string, Case>> = {
  'GET /openai/v1/models': { ask: () => ({ path: '/openai/v1/models' }), takes: [] },
  'GET /openai/v1/models/{model}': {
    ask: ({ agent }) => ({ path: `/openai/v1/models/${agent}` }),
    takes: [['agent']],
  },
  'POST /openai/v1/chat/completions': {
    ask: complete,
    takes: [
      ['agent'],
      [
        'execution',
        (things) => {
          const calls = [{ id: callId(things), function: { name: 'a', arguments: '{}' } }]
          const answered = [
            { role: 'assistant', tool_calls: calls },
            { role: 'tool', tool_call_id: callId(things), content: 'x' },
          ]
          const { path, body } = complete(things)
          return { path, body: { ...body, messages: [...body.messages, ...answered] } }
        },
      ],
    ],
    run: (things, key, message) => ({ ...complete(things, message), headers: keyed(key) }),
  },
  'POST /openai/v1/responses': {
    ask: respond,
    takes: [
      ['agent'],
      ['execution', (things) => respond(things, { previous_response_id: `resp_${things.execution}` })],
      ['session', (things) => respond(things, { conversation: things.session })],
    ],
    run: (things, key, message) => ({ ...respond(things, {}, message), headers: keyed(key) }),
  },
  'GET /openai/v1/responses/{id}': {
    ask: ({ execution }) => ({ path: `/openai/v1/responses/resp_${execution}` }),
    takes: [['execution']],
  },
  'GET /openai/v1/responses/{id}/input_items': {
    ask: ({ execution }) => ({ path: `/openai/v1/responses/resp_${execution}/input_items` }),
    takes: [['execution']],
  },
  'POST /openai/v1/responses/{id}/cancel': {
    ask: ({ execution }) => ({ path: `/openai/v1/responses/resp_${execution}/cancel` }),
    takes: [['execution']],
    audit: 'execution.cancel',
  },
  'DELETE /openai/v1/responses/{id}': {
    ask: ({ execution }) => ({ path: `/openai/v1/responses/resp_${execution}` }),
    takes: [['execution']],
    audit: 'response.delete',
  },
  'POST /mcp': {
    ask: ({ agent }) => tool('/mcp', 'get_agent', { id: agent }),
    // The matrix walks over the tools, too.
    takes: [['agent']],
    run: ({ agent: id }, idempotencyKey, message) => tool('/mcp', 'run_agent', { id, message, idempotencyKey }),
  },
  'POST /mcp/agents/{id}': {
    ask: ({ agent }) => ({ path: `/mcp/agents/${agent}`, headers: ACCEPT, body: rpc('tools/list', {}) }),
    takes: [
      ['agent'],
      ['session', ({ agent, session }) => tool(`/mcp/agents/${agent}`, 'ask', { message: 'Hi', session })],
    ],
    run: ({ agent }, idempotencyKey, message) => tool(`/mcp/agents/${agent}`, 'ask', { message, idempotencyKey }),
  },
  'POST /api/v1/agents/{id}/chat': {
    ask: chat,
    takes: [
      ['agent'],
      ['space', (things) => chat(things, { spaceId: things.space })],
      ['media', (things) => chat(things, { mediaIds: [things.media] })],
      [
        'approval',
        (things) => {
          const approval = { id: things.approval, approved: true }
          const part = { type: 'dynamic-tool', toolName: 'a', toolCallId: 'a', state: 'approval-responded', approval }
          return chat(things, { messages: [user('Hi'), { role: 'assistant', parts: [part] }] })
        },
      ],
      [
        'execution',
        (things) => {
          const part = { type: 'tool-a', toolCallId: callId(things), state: 'output-available', output: 'x' }
          return chat(things, { messages: [user('Hi'), { role: 'assistant', parts: [part] }] })
        },
      ],
    ],
    run: (things, key, message) => ({ ...chat(things, {}, message), headers: keyed(key) }),
  },
  'GET /api/v1/agents/{id}/chat/{chatId}/stream': {
    ask: ({ agent, session }) => ({ path: `/api/v1/agents/${agent}/chat/${session}/stream` }),
    takes: [['agent']],
  },
  'POST /api/v1/agents/{id}/ag-ui': {
    ask: agUi,
    takes: [
      ['agent'],
      [
        'approval',
        (things) =>
          agUi(things, {
            resume: [{ interruptId: things.approval, status: 'resolved', payload: { approved: true } }],
          }),
      ],
      [
        'execution',
        (things) =>
          agUi(things, {
            messages: [
              { id: '1', role: 'user', content: 'Hi' },
              { id: '2', role: 'tool', toolCallId: callId(things), content: 'x' },
            ],
          }),
      ],
    ],
    run: (things, key, message) => ({ ...agUi(things, {}, message), headers: keyed(key) }),
  },
  'POST /a2a/agents/{id}': {
    ask: (things) => a2a(things, 'ListTasks', {}),
    takes: [
      ['agent'],
      ['execution', (things) => a2a(things, 'GetTask', { id: things.execution })],
      ['execution', (things) => a2a(things, 'CancelTask', { id: things.execution })],
      ['session', (things) => send(things, { contextId: things.session })],
      ['session', (things) => a2a(things, 'ListTasks', { contextId: things.session })],
      ['execution', (things) => send(things, { taskId: things.execution })],
      ['execution', (things) => push(things, 'Create', { url: 'https://push.invalid/' })],
      ['execution', (things) => push(things, 'Get', { id: 'none' })],
      ['execution', (things) => push(things, 'List')],
      ['execution', (things) => push(things, 'Delete', { id: 'none' })],
    ],
    run: (things, key, message) => send(things, { messageId: key }, message),
  },
  'GET /a2a/agents/{id}/.well-known/agent-card.json': {
    ask: ({ agent }) => ({ path: `/a2a/agents/${agent}/.well-known/agent-card.json` }),
    takes: [['agent']],
  },
  'GET /a2a/agents/{id}/.well-known/agent.json': {
    ask: ({ agent }) => ({ path: `/a2a/agents/${agent}/.well-known/agent.json` }),
    takes: [['agent']],
  },
}

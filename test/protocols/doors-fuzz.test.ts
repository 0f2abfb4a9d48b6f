import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createAgent } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// Valid and invalid messages for the MCP server and the Agent2Agent door. Each must get an answer below 500.

const RUNS = Number(process.env.FUZZ_RUNS ?? 60)
const SEED = Number(process.env.FUZZ_SEED ?? 1)

const server = await use(startServer())
const ann = await server.member({ role: 'owner' })
const agent = await createAgent({ ...server, token: ann.token })

const text = fc.oneof(
  fc.string(),
  fc.constantFrom('', '\0', '\ud800', 'x'.repeat(300), '%', '__proto__', 'constructor'),
)
const json = fc.jsonValue({ maxDepth: 3 })
/** Mostly a value that fits, sometimes any other. */
const mostly = (arbitrary: fc.Arbitrary<unknown>) => fc.oneof({ arbitrary, weight: 6 }, { arbitrary: json, weight: 1 })

const envelope = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {
    elicitation: {},
    extensions: { 'io.modelcontextprotocol/tasks': {} },
  },
}

const mcp = fc.record({
  method: mostly(
    fc.constantFrom(
      ...['tools/list', 'tools/call', 'prompts/list', 'prompts/get', 'resources/list', 'resources/read', 'skills/get'],
      ...['tasks/get', 'tasks/update', 'tasks/cancel', 'server/discover', 'initialize', 'skills/list'],
    ),
  ),
  params: mostly(
    fc.record(
      {
        name: mostly(fc.constantFrom('run_agent', 'list_tasks', 'get_agent', 'write_file', 'get_usage', 'constructor')),
        arguments: mostly(
          fc.dictionary(fc.constantFrom('id', 'message', 'limit', 'cursor', 'path', 'idempotencyKey'), mostly(text)),
        ),
        uri: mostly(
          fc.constantFrom('muster://spaces/x/files/a', 'skill://a/SKILL.md', 'muster://spaces//files/%E0', ':'),
        ),
        cursor: mostly(text),
        taskId: mostly(text),
        requestState: mostly(text),
        inputResponses: json,
      },
      { requiredKeys: [] },
    ),
  ),
})

const a2a = fc.record({
  method: mostly(
    fc.constantFrom(
      ...[
        'SendMessage',
        'SendStreamingMessage',
        'GetTask',
        'ListTasks',
        'CancelTask',
        'SubscribeToTask',
        'message/send',
      ],
      ...['message/stream', 'tasks/get', 'tasks/cancel', 'tasks/resubscribe', 'GetExtendedAgentCard'],
    ),
  ),
  params: mostly(
    fc.record(
      {
        message: mostly(
          fc.record(
            {
              messageId: mostly(text),
              contextId: mostly(text),
              taskId: mostly(text),
              role: mostly(fc.constantFrom('ROLE_USER', 'user')),
              parts: mostly(
                fc.array(mostly(fc.record({ kind: fc.constant('text'), text: mostly(text) })), { maxLength: 3 }),
              ),
            },
            { requiredKeys: [] },
          ),
        ),
        id: mostly(text),
        contextId: mostly(text),
        pageSize: json,
        pageToken: mostly(text),
        status: mostly(fc.constantFrom('TASK_STATE_WORKING', 'TASK_STATE_REJECTED')),
        statusTimestampAfter: mostly(text),
        includeArtifacts: json,
      },
      { requiredKeys: [] },
    ),
  ),
})

const isInternal = (body: unknown): boolean => JSON.stringify(body)?.includes('"code":-32603') ?? false

it.each(['2025', '2026'] as const)('every message of %s gets an answer at /mcp', async (era) => {
  await fc.assert(
    fc.asyncProperty(mcp, async ({ method, params }) => {
      const isObject = typeof params === 'object' && params !== null && !Array.isArray(params)
      const { name, uri, taskId } = (isObject ? params : {}) as Record<string, unknown>
      const label = [name, uri, taskId].find((each) => typeof each === 'string' && /^[\x21-\x7e]+$/.test(each))
      const modern = {
        'MCP-Protocol-Version': '2026-07-28',
        ...(typeof method === 'string' && /^[\x21-\x7e]+$/.test(method) && { 'Mcp-Method': method }),
        ...(label !== undefined && { 'Mcp-Name': String(label) }),
      }
      const headers = { Accept: 'application/json, text/event-stream', ...(era === '2026' && modern) }
      const body = {
        jsonrpc: '2.0',
        id: 1,
        method,
        params: isObject && era === '2026' ? { ...params, _meta: envelope } : params,
      }
      const { status, body: answer } = await request(server, 'POST', '/mcp', { body, headers, token: ann.token })
      expect(status, JSON.stringify(answer)).toBeLessThan(500)
      expect(JSON.stringify(answer)).not.toContain('"statusCode":500')
    }),
    { numRuns: RUNS, seed: SEED },
  )
})

it.each(['1.0', '0.3'] as const)('every message of version %s gets an answer at /a2a', async (version) => {
  await fc.assert(
    fc.asyncProperty(a2a, async ({ method, params }) => {
      const body = { jsonrpc: '2.0', id: 1, method, params }
      const headers = { 'A2A-Version': version }
      const answer = await request(server, 'POST', `/a2a/agents/${agent}`, { body, headers, token: ann.token })
      expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(500)
      expect(isInternal(answer.body), JSON.stringify([body, answer.body])).toBe(false)
    }),
    { numRuns: RUNS, seed: SEED },
  )
})

import { createServer, type RequestListener } from 'node:http'
import { afterAll, describe, expect, it } from 'vitest'
import { createApp } from '../../src/app.ts'
import { toAppError, toBody } from '../../src/errors.ts'
import { readBody, sendJson } from '../../src/http/body.ts'
import { createHostCheck } from '../../src/http/hosts.ts'
import { serve } from '../../src/protocols/mcp/door.ts'
import { checkOrigin } from '../../src/protocols/mcp/http.ts'
import { type Tool, toolsByName } from '../../src/protocols/mcp/tools.ts'
import type { Context } from '../../src/trpc.ts'
import { createMcp } from '../engine/tool-lab.ts'
import { runConformance } from '../support/conformance.ts'
import { listen } from '../support/listen.ts'
import { createFixtures } from '../support/mcp-fixtures.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// The official conformance tests: all scenarios against fixtures behind this service's handler, and the ones without
// fixtures against /mcp itself.

const model = await use(startModelServer())
const mcp = await use(startMcpServer())
const server = await use(
  startServer({
    ...model.env,
    ALLOW_PRIVATE_NETWORK: 'true',
  }),
)
const ann = await server.member({ organization: 'Acme' })

/** Serves on loopback while the tests of a revision run. Returns the failed checks by scenario, null for none. */
async function conform(listener: RequestListener, revision: string): Promise<Record<string, string[]>> {
  const http = createServer(listener)
  const port = await listen(http)
  try {
    const url = `http://localhost:${port}/mcp`
    return await runConformance(['server', '--url', url, '--requirements', revision])
  } finally {
    http.closeAllConnections()
    http.close()
  }
}

/** The whole service, for a client that sends no token. */
const real: RequestListener = (req, res) => {
  req.headers.authorization = `Bearer ${ann.token}`
  void createApp(server.service.deps, async () => ({}))(req, res)
}

/** The handler of /mcp with the fixtures. */
const fixtures: RequestListener = async (req, res) => {
  const { deps } = server.service
  try {
    createHostCheck(deps.settings).check(req)
    checkOrigin(deps.settings, req)
    const body = await readBody(req, 1024 * 1024)
    const gone = new AbortController()
    res.on('close', () => gone.abort())
    const context = { deps, requestId: 'x', streamTo: () => gone.signal } as unknown as Context
    const { organizationId } = ann
    const door = {
      context,
      actor: { organizationId } as never,
      tools: new Map(),
      agentId: undefined,
      message: undefined,
    }
    const create = () => createFixtures(() => deps.bus.publish('skill', [organizationId]))
    await serve(door, body, req, res, create)
  } catch (error) {
    sendJson(res, toAppError(error).status, toBody(toAppError(error), 'x'))
  }
}

const TASK_TOOLS = ['slow_compute', 'failing_job', 'confirm_delete']

// Other test files of the worker share the tools.
afterAll(async () => {
  for (const name of ['greet', ...TASK_TOOLS]) (toolsByName() as Map<string, Tool>).delete(name)
})

/** Makes tools that the scenarios of tasks call: each runs an agent, whose model follows the arguments. */
async function addTaskTools(): Promise<void> {
  const mcpId = await createMcp({ url: server.url, token: ann.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
  const body = { name: 'Ada', systemPrompt: 'You are Ada.', mcpInstanceIds: [mcpId] }
  const { id } = (await request(server, 'POST', '/api/v1/agents', { body, token: ann.token })).body
  const tools = toolsByName() as Map<string, Tool>
  const runAgent = tools.get('run_agent')!
  const add = (name: string, waits: boolean, call: Tool['call']) =>
    tools.set(name, {
      waits,
      scopes: [],
      call,
      definition: { ...runAgent.definition, name, inputSchema: { type: 'object' }, outputSchema: { type: 'object' } },
    })
  add('greet', false, async (_, __, { name }) => ({ greeting: `Hello, ${name}!` }))
  for (const name of TASK_TOOLS) {
    add(name, true, (context, actor, args, options) =>
      runAgent.call(context, actor, { id, message: JSON.stringify({ name, ...args }) }, options),
    )
  }
  model.fallback = ({ body: { messages } }) => {
    if (messages.at(-1)?.role === 'tool') return { tokens: 'Done' }
    const { name, seconds = 0 } = JSON.parse(String(messages.at(-1)?.content))
    if (name === 'slow_compute') return { tokens: ['Done'], delay: seconds * 1000 }
    if (name === 'failing_job') return { error: { status: 400 } }
    return { toolCalls: [{ id: 'call', name: 'echo', input: { text: 'Delete?' } }] }
  }
}

/**
 * Scenarios of the tasks extension, with the checks that do not apply: runs fail as tools do. Scenarios with questions
 * expect other questions than approvals.
 */
const OF_TASKS: Record<string, string[]> = {
  'tasks-lifecycle': ['sep-2663-tasks-get-status-failed'],
  'tasks-capability-negotiation': [],
  'tasks-wire-fields': [],
  'tasks-request-state-removal': [],
  // Results here are JSON.
  'tasks-request-headers': ['tasks-headers-tolerate-mcp-method-on-tools-call'],
  'tasks-dispatch-and-envelope': [],
  'tasks-status-notifications': [],
}

const WITHOUT_FIXTURES = [
  ...['tools-list', 'resources-list', 'prompts-list', 'caching', 'dns-rebinding-protection', 'http-header-validation'],
  ...['server-sse-multiple-streams', 'sep-2164-resource-not-found', 'input-required-result-missing-input-response'],
  ...['input-required-result-unsupported-methods', 'input-required-result-ignore-extra-params'],
  'input-required-result-validate-input',
]

/** Scenarios of fixtures that belong to optional parts, which the service does not have. */
const LEFT_OUT = /^(tasks-|json-schema-2020-12$|http-custom-header-server-validation$)/

/**
 * Scenarios of 2025-11-25 that need a session: requests of the server to the client, and subscriptions to a resource.
 */
const OF_SESSIONS = [
  ...['tools-call-sampling', 'tools-call-elicitation', 'elicitation-sep1034-defaults', 'elicitation-sep1330-enums'],
  ...['resources-subscribe', 'resources-unsubscribe'],
]

/** Returns the scenarios with failed checks, apart from some. */
const failed = (failures: Record<string, string[]>, isLeftOut: (scenario: string) => boolean) =>
  Object.fromEntries(Object.entries(failures).filter(([name, checks]) => checks.length && !isLeftOut(name)))

describe('the conformance tests', () => {
  it('the conformance tests of 2026-07-28 pass with their fixtures', async () => {
    const failures = await conform(fixtures, '2026-07-28')
    expect(Object.keys(failures).length).toBeGreaterThan(36)
    expect(failed(failures, (name) => LEFT_OUT.test(name))).toEqual({})
  })

  it('the tests of 2026-07-28 pass at /mcp if they need no fixtures or are about tasks', async () => {
    await addTaskTools()
    const failures = await conform(real, '2026-07-28')
    for (const scenario of WITHOUT_FIXTURES) expect(failures[scenario], scenario).toEqual([])
    for (const [scenario, others] of Object.entries(OF_TASKS)) expect(failures[scenario], scenario).toEqual(others)
  })

  it('the conformance tests of 2025-11-25 pass if they need no session', async () => {
    const failures = await conform(fixtures, '2025-11-25')
    expect(Object.keys(failures).length).toBeGreaterThan(30)
    expect(failed(failures, (name) => LEFT_OUT.test(name) || OF_SESSIONS.includes(name))).toEqual({})
  })
})

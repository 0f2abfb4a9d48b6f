import { beforeAll, describe, expect, it } from 'vitest'
import { isScope, SCOPES } from '../../src/auth/scopes.ts'
import { DOOR_ROUTES } from '../../src/http/door-routes.ts'
import { newSortableId } from '../../src/lib/id.ts'
import { toolsByName } from '../../src/protocols/mcp/tools.ts'
import { changesIn, everything, type Ids, inputWith, kindsOf, maker, neverWas, rowsOf } from '../security/fixtures.ts'
import { procedures } from '../support/api.ts'
import { takesId } from '../support/inputs.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import { type Asking, CASES, type Things } from './cases.ts'

/** The matrices of the other APIs, for every method of every address of the doors. */

/** The scopes of each request by hand, of which any is enough. Without scopes any token is. */
const NEEDED: Record<string, string[]> = {
  'GET /openai/v1/models': ['agents:read', 'agents:execute'],
  'GET /openai/v1/models/{model}': ['agents:read', 'agents:execute'],
  'POST /openai/v1/chat/completions': ['agents:execute'],
  'POST /openai/v1/responses': ['agents:execute'],
  'GET /openai/v1/responses/{id}': ['executions:read', 'agents:execute'],
  'GET /openai/v1/responses/{id}/input_items': ['executions:read', 'agents:execute'],
  'POST /openai/v1/responses/{id}/cancel': ['executions:write', 'agents:execute'],
  'DELETE /openai/v1/responses/{id}': ['executions:write', 'agents:execute'],
  'POST /mcp': ['agents:read'],
  'POST /mcp/agents/{id}': [],
  'POST /api/v1/agents/{id}/chat': ['agents:execute'],
  'GET /api/v1/agents/{id}/chat/{chatId}/stream': ['executions:read', 'agents:execute'],
  'POST /api/v1/agents/{id}/ag-ui': ['agents:execute'],
  'POST /a2a/agents/{id}': ['executions:read', 'agents:execute'],
  'GET /a2a/agents/{id}/.well-known/agent-card.json': [],
  'GET /a2a/agents/{id}/.well-known/agent.json': [],
}

const ADDRESSES = DOOR_ROUTES.flatMap(({ path, methods }) => Object.keys(methods).map((method) => `${method} ${path}`))
const RUNS = Object.entries(CASES).flatMap(([name, { run }]) => (run ? [[name, run] as const] : []))

const model = await use(startModelServer())
const server = await use(startServer(model.env))
const ann = await server.member({ organization: 'Acme', email: 'ann@example.com' })
const own = await everything(server, ann, 'canary-shared')

const ask = (name: string, { path, ...asking }: Asking, { token }: Pick<Member, 'token'> = ann) =>
  request(server, name.split(' ', 1)[0]!, path, { ...asking, token })

/** Ids of nothing. */
const nothing = (): Things =>
  new Proxy({} as Things, { get: (_, kind) => neverWas(kind as keyof Things) }) as Required<Ids>

it('the tables have every method of every address', () => {
  expect(Object.keys(CASES).sort()).toEqual(ADDRESSES.toSorted())
  expect(Object.keys(NEEDED).sort()).toEqual(ADDRESSES.toSorted())
  const writes = ADDRESSES.filter((name) => !name.startsWith('GET'))
  expect(writes.filter((name) => !CASES[name]!.run && !CASES[name]!.audit)).toEqual([])
})

describe('scopes', () => {
  const suffices = (scopes: readonly string[], scope: string) =>
    scope === '*' || !scopes.length || scopes.includes(scope) || scopes.includes(scope.replace(/:write$/, ':read'))
  const tokens = new Map<string, Member>()
  beforeAll(async () => {
    for (const scope of [...SCOPES, '']) {
      const scopes = scope ? [scope] : []
      tokens.set(scope, await server.member({ organization: 'Acme', email: 'scopes@example.com', scopes }))
    }
  })

  it.each(Object.entries(NEEDED))('%s accepts a token with %j, and no other', async (name, scopes) => {
    expect(scopes.every(isScope)).toBe(true)
    for (const [scope, who] of tokens) {
      const things = name.startsWith('POST /mcp') ? own : nothing()
      const { status } = await ask(name, CASES[name]!.ask(things), who)
      if (suffices(scopes, scope)) expect([200, 204, 400, 404], `${scope}: ${status}`).toContain(status)
      else expect([scope, status]).toEqual([scope, 403])
    }
  })

  it('no batch of MCP calls runs an agent without the scope', async () => {
    const call = CASES['POST /mcp/agents/{id}']!.run!(own, 'key', 'Hi')
    const before = await server.service.deps.db.execution.count()
    for (const [scope, who] of tokens) {
      if (suffices(['agents:execute'], scope)) continue
      const { body } = await ask('POST /mcp', { ...call, body: [call.body!] }, who)
      expect([scope, JSON.stringify(body)]).toEqual([scope, expect.stringContaining('insufficient_scope')])
    }
    expect(await server.service.deps.db.execution.count()).toBe(before)
  })

  it('a token sees the MCP tools that its scopes allow, and calls no other', async () => {
    const headers = { Accept: 'application/json, text/event-stream' }
    for (const [scope, { token }] of tokens) {
      const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }
      const { body } = await request(server, 'POST', '/mcp', { body: list, headers, token })
      const { tools } = (typeof body === 'string' ? JSON.parse(body.match(/^data: (.+)$/m)![1]!) : body).result
      const allowed = [...toolsByName().values()].filter((tool) => suffices(tool.scopes, scope))
      expect([scope, tools.map((tool: { name: string }) => tool.name).sort()]).toEqual([
        scope,
        allowed.map(({ definition }) => definition.name).sort(),
      ])
      const other = [...toolsByName().keys()].find(
        (name) => !allowed.some(({ definition }) => definition.name === name),
      )
      if (!other) continue
      const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: other, arguments: {} } }
      expect((await request(server, 'POST', '/mcp', { body: call, headers, token })).status).toBe(403)
    }
  })
})

describe('isolation', () => {
  let eve: Member
  let ben: Member
  let closed: Ids
  const things = {} as Record<'eve' | 'ben', Things>
  beforeAll(async () => {
    eve = await server.member({ organization: 'Evil', role: 'owner' })
    ben = await server.member({ organization: 'Acme' })
    things.eve = await everything(server, eve, 'canary-eve')
    things.ben = await everything(server, ben, 'canary-ben')
    const make = maker(server, ann)
    const marks = { visibility: 'private', canary: 'canary-private' } as const
    const agent = await make.agent(marks)
    closed = { agent, space: await make.space(marks), ...(await make.run(marks, { id: agent })) }
  })

  /** Replaces all that differs between two requests. */
  const plain = (answer: { status: number; body: unknown }, id: string): string =>
    `${answer.status} ${typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body)}`
      .replaceAll(id, '<id>')
      .replace(/exec-\d+-\w{22}/g, '<run>')
      .replace(/\b(conv_)?0\w{30}\b/g, '<session>')
      .replace(/"(created|completed)(_at)?":\d+/g, '"$1$2":0')
      .replace(/"requestId":"[\w-]+"/g, '"requestId":"…"')
      .replace(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, '"<time>"')

  /** A conversation of OpenAI has the format of a session, or is a name. */
  const neverWasOf = (kind: keyof Things) => (kind === 'session' ? newSortableId(new Date()) : neverWas(kind))

  /** Requests whose answers do not depend on the id: the run waits for no results of tools, and the lists are empty. */
  const FAIL = /^POST \/mcp list_|^POST \S+\/(completions|chat|ag-ui) \(execution\)/

  /** Every id that an address or a tool takes, with a request about it. */
  function attacks(mine: Things) {
    const ofAddresses = Object.entries(CASES).flatMap(([name, { ask: usual, takes }]) =>
      takes.map(([kind, special = usual]) => ({
        name,
        kind,
        about: (id: string) => special({ ...mine, [kind]: id }),
      })),
    )
    const ofTools = Object.entries(procedures).flatMap(([procedure, { _def }]) => {
      const { mcp } = _def.meta as { mcp?: { name: string; inputs: string } }
      const names = mcp?.inputs.split(' ') ?? []
      return names.filter(takesId).flatMap((field) =>
        kindsOf(procedure, field).map((kind) => ({
          name: `POST /mcp ${mcp!.name} ${field}`,
          kind,
          about: (id: string): Asking => {
            const input = inputWith(procedure, field, id, mine)
            const args = Object.fromEntries(Object.entries(input).filter(([key]) => names.includes(key)))
            return {
              path: '/mcp',
              headers: { Accept: 'application/json, text/event-stream' },
              body: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: mcp!.name, arguments: args } },
            }
          },
        })),
      )
    })
    return [...ofAddresses, ...ofTools]
  }

  it.each([
    ['the owner of another organization', 'eve'],
    ['another member', 'ben'],
  ] as const)('%s finds nothing by a foreign id, as if it never existed', async (_, who) => {
    const caller = who === 'eve' ? eve : ben
    const victims = who === 'eve' ? [own, closed] : [closed]
    const before = await rowsOf(server)
    const ids = victims.flatMap(({ organization: _of, user: _who, ...of }) => Object.values(of))
    const theirs = [...before].filter(([place, row]) => ids.some((id) => place.includes(id) || row.includes(id)))
    const places = new Set(theirs.map(([place]) => place))
    const problems: string[] = []
    let count = 0
    for (const { name, kind, about } of attacks(things[who])) {
      const never = neverWasOf(kind)
      const nobodys = plain(await ask(name, about(never), caller), never)
      for (const victim of victims) {
        const id = victim[kind]
        if (id === undefined) continue
        count++
        const answer = plain(await ask(name, about(id), caller), id)
        if (answer !== nobodys) problems.push(`${name} (${kind}): ${answer} is not ${nobodys}`)
        if (/canary-(shared|private)/.test(answer)) problems.push(`${name} (${kind}) tells ${answer}`)
      }
    }
    expect(problems).toEqual([])
    expect(count).toBeGreaterThan(20)
    expect(places.size).toBeGreaterThan(20)
    const changes = await changesIn(server, before, places, ids)
    // A conversation may have any name.
    expect(changes.filter((change) => !change.startsWith('ConversationName '))).toEqual([])
  })

  it('every id is also tried with things of the caller, which get another answer', async () => {
    const problems: string[] = []
    for (const { name, kind, about } of attacks(own)) {
      if (FAIL.test(`${name} (${kind})`)) continue
      const never = neverWasOf(kind)
      const [nobodys, mine] = [await ask(name, about(never)), await ask(name, about(own[kind]))]
      if (plain(nobodys, never) === plain(mine, own[kind]))
        problems.push(`${name} (${kind}): ${plain(mine, own[kind])}`)
    }
    expect(problems).toEqual([])
  })
})

describe('runs', () => {
  const executions = () => server.service.deps.db.execution.count()
  const audited = (action: string) => server.service.deps.db.auditEvent.count({ where: { action, actor: ann.userId } })

  it.each(RUNS)('%s runs once for an idempotency key, and writes one audit event', async (name, run) => {
    const key = `key of ${name.replace(/\W/g, '')}`
    const [before, events] = [await executions(), await audited('agent.execute')]
    const answers = [await ask(name, run(own, key, 'Hi')), await ask(name, run(own, key, 'Hi'))]
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    expect(await executions()).toBe(before + 1)
    const other = await ask(name, run(own, key, 'Bye'))
    expect(
      other.status === 422 || /idempotency|messageId was used/i.test(JSON.stringify(other.body)),
      JSON.stringify(other.body),
    ).toBe(true)
    expect(await executions()).toBe(before + 1)
    expect(await audited('agent.execute')).toBe(events + 1)
  })

  it.each(
    Object.entries(CASES).flatMap(([name, { ask: about, audit }]) => (audit ? [[name, audit, about] as const] : [])),
  )('%s writes the audit event %s', async (name, action, about) => {
    model.script({ tokens: ['one '], end: 'hang' })
    const arrives = model.request(model.requests.length)
    const body = { message: 'Hi', background: true }
    const begun = await request(server, 'POST', `/api/v1/agents/${own.agent}/execute`, { body, token: ann.token })
    // A cancelled run that had not asked would leave its reply to the next one.
    await arrives
    const before = await audited(action)
    expect((await ask(name, about({ ...own, execution: begun.body.executionId }))).status).toBe(200)
    expect(await audited(action)).toBe(before + 1)
  })
})

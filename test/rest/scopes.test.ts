import { beforeAll, describe, expect, it } from 'vitest'
import { isScope } from '../../src/auth/scopes.ts'
import { APIS, apis, expectError, procedures } from '../support/api.ts'
import { request } from '../support/rest.ts'
import { sample } from '../support/sample.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const FORBIDDEN = "You don't have permission to access this resource"

/**
 * The table of contract.md section 2, by hand, against which the code is compared. Any of the listed scopes suffices. A
 * write scope includes its read scope. An empty list means any token.
 */
const NEEDED: Record<string, string[]> = {
  'agents.list': ['agents:read'],
  'agents.create': ['agents:write'],
  'agents.get': ['agents:read'],
  'agents.update': ['agents:write'],
  'agents.delete': ['agents:write'],
  'agents.updateSkill': ['agents:write'],
  'agents.versions': ['agents:read'],
  'agents.execute': ['agents:execute'],
  'agents.listPublic': ['agents:read'],
  'agents.getPublic': ['agents:read'],
  'approvals.list': ['approvals:read'],
  'approvals.approve': ['approvals:write'],
  'approvals.deny': ['approvals:write'],
  'audit.list': ['audit:read'],
  'chats.list': ['chats:read'],
  'chats.create': ['chats:write'],
  'chats.get': ['chats:read'],
  'chats.update': ['chats:write'],
  'chats.delete': ['chats:write'],
  'chats.messages': ['chats:read'],
  'chats.events': ['chats:read'],
  'tasks.changes': ['tasks:read'],
  'approvals.changes': ['approvals:read'],
  'chats.send': ['agents:execute'],
  'client.init': ['spaces:write'],
  'client.environment': ['secrets:write'],
  'client.execute': ['agents:execute'],
  'client.publicAgents': ['agents:read'],
  'client.createToken': ['keys:write'],
  'client.listTokens': ['keys:read'],
  'client.revokeToken': ['keys:write'],
  'client.browseFiles': ['spaces:read'],
  'client.browseSpace': ['spaces:read'],
  'client.readFile': ['spaces:read'],
  'client.writeFile': ['spaces:write'],
  'client.deleteFile': ['spaces:write'],
  'events.list': ['webhooks:read'],
  'events.follow': ['webhooks:read'],
  'executions.create': ['agents:execute'],
  'executions.list': ['executions:read'],
  'executions.get': ['executions:read', 'agents:execute'],
  'executions.rerun': ['agents:execute'],
  'executions.cancel': ['executions:write', 'agents:execute'],
  'executions.tree': ['executions:read', 'agents:execute'],
  'executions.logs': ['executions:read', 'agents:execute'],
  'executions.events': ['executions:read', 'agents:execute'],
  'files.list': ['spaces:read'],
  'files.get': ['spaces:read'],
  'files.write': ['spaces:write'],
  'files.delete': ['spaces:write'],
  'keys.list': ['keys:read'],
  'keys.create': ['keys:write'],
  'keys.delete': ['keys:write'],
  'mcps.catalogue': ['mcps:read'],
  'mcps.list': ['mcps:read'],
  'mcps.create': ['mcps:write'],
  'mcps.get': ['mcps:read'],
  'mcps.update': ['mcps:write'],
  'mcps.delete': ['mcps:write'],
  'mcps.tools': ['mcps:read'],
  'mcps.connect': ['mcps:write'],
  'mcps.disconnect': ['mcps:write'],
  'media.list': ['media:read'],
  'media.get': ['media:read'],
  'media.delete': ['media:write'],
  'missions.list': ['missions:read'],
  'missions.create': ['missions:write'],
  'missions.preview': ['missions:read'],
  'missions.get': ['missions:read'],
  'missions.update': ['missions:write'],
  'missions.delete': ['missions:write'],
  'missions.run': ['missions:write'],
  'missions.pause': ['missions:write'],
  'missions.resume': ['missions:write'],
  'missions.runs': ['missions:read'],
  'missions.next': ['missions:read'],
  'limits.get': [],
  'models.list': [],
  'organizations.list': ['organization:read', 'profile:read'],
  'organizations.create': ['organization:write'],
  'organizations.get': ['organization:read', 'profile:read'],
  'organizations.update': ['organization:write'],
  'organizations.members': ['members:read', 'organization:read'],
  'organizations.listInvitations': ['members:read'],
  'organizations.createInvitation': ['members:write'],
  'organizations.deleteInvitation': ['members:write'],
  'organizations.listServiceAccounts': ['members:read'],
  'organizations.createServiceAccount': ['members:write'],
  'organizations.updateServiceAccount': ['members:write'],
  'organizations.deleteServiceAccount': ['members:write'],
  'organizations.listServiceKeys': ['members:read'],
  'organizations.createServiceKey': ['members:write'],
  'organizations.deleteServiceKey': ['members:write'],
  'organizations.updateMember': ['members:write'],
  'organizations.removeMember': ['members:write'],
  'organizations.getPolicy': ['organization:read'],
  'organizations.listFormer': ['organization:read'],
  'organizations.listThings': ['organization:read'],
  'organizations.takeOver': ['organization:write'],
  'organizations.updatePolicy': ['organization:write'],
  'profile.get': ['profile:read'],
  'profile.update': ['profile:write'],
  'providers.list': ['providers:read'],
  'providers.set': ['providers:write'],
  'providers.delete': ['providers:write'],
  'secrets.list': ['secrets:read'],
  'secrets.set': ['secrets:write'],
  'secrets.delete': ['secrets:write'],
  'secrets.deleteOne': ['secrets:write'],
  'secrets.listEnv': ['secrets:read'],
  'secrets.setEnv': ['secrets:write'],
  'secrets.deleteEnv': ['secrets:write'],
  'secrets.deleteOneEnv': ['secrets:write'],
  'sessions.current': [],
  'sessions.list': ['profile:read'],
  'sessions.end': ['profile:write'],
  'sessions.signIn': [],
  'sessions.signOut': [],
  'sessions.readInvitation': [],
  'sessions.acceptInvitation': [],
  'sessions.useLink': [],
  'sessions.forgotPassword': [],
  'sessions.changePassword': ['profile:write'],
  'skills.list': ['skills:read'],
  'skills.create': ['skills:write'],
  'skills.get': ['skills:read'],
  'skills.update': ['skills:write'],
  'skills.delete': ['skills:write'],
  'spaces.list': ['spaces:read'],
  'spaces.create': ['spaces:write'],
  'spaces.get': ['spaces:read'],
  'spaces.update': ['spaces:write'],
  'spaces.updateSkill': ['spaces:write'],
  'spaces.delete': ['spaces:write'],
  'tasks.list': ['tasks:read'],
  'tasks.create': ['tasks:write'],
  'tasks.get': ['tasks:read'],
  'tasks.update': ['tasks:write'],
  'tasks.delete': ['tasks:write'],
  'tasks.claim': ['tasks:write'],
  'tasks.execute': ['tasks:write'],
  'usage.get': ['usage:read'],
  'webhooks.list': ['webhooks:read'],
  'webhooks.create': ['webhooks:write'],
  'webhooks.get': ['webhooks:read'],
  'webhooks.update': ['webhooks:write'],
  'webhooks.delete': ['webhooks:write'],
  'webhooks.rotate': ['webhooks:write'],
  'webhooks.test': ['webhooks:write'],
  'webhooks.deliveries': ['webhooks:read'],
  'webhooks.replayDelivery': ['webhooks:write'],
  'webhooks.replay': ['webhooks:write'],
}

/** Routes of byte streams, which are no procedures. */
const ROUTES: [method: string, path: string, scope: string][] = [
  ['POST', '/api/v1/media', 'media:write'],
  ['POST', '/api/files/upload?spaceId=none', 'spaces:write'],
  ['GET', '/api/v1/media/none/content', 'media:read'],
  ['GET', '/api/v1/audit/export?since=never', 'audit:read'],
]

const RESOURCES = [
  ...['agents', 'tasks', 'executions', 'spaces', 'chats', 'secrets', 'missions', 'skills'],
  ...['mcps', 'keys', 'media', 'profile', 'usage', 'approvals', 'organization', 'members', 'audit'],
  ...['providers', 'webhooks', 'budgets'],
]
const SCOPES = ['*', 'agents:execute', ...RESOURCES.flatMap((name) => [`${name}:read`, `${name}:write`])]

const suffices = (scopes: string[], scope: string) =>
  scope === '*' || scopes.length === 0 || scopes.includes(scope) || scopes.includes(scope.replace(/:write$/, ':read'))

/** One token per scope and one without any, all of one user, whose role allows everything. */
const tokens = new Map<string, string>()
/** An unknown row in the user's own organization. */
const nothing: Record<string, unknown> = { id: 'none', spaceId: 'none' }
/** Targets for procedures that check more than a scope: the user's own. */
const inputs: Record<string, Record<string, unknown>> = {}
const server = await use(startServer())
for (const scope of [...SCOPES, '']) {
  const options = { email: 'scopes@example.com', role: 'owner' as const, scopes: scope ? [scope] : [] }
  const member = await server.member(options)
  tokens.set(scope, member.token)
  nothing.orgId = member.organizationId
}
beforeAll(async () => {
  const token = tokens.get('*')!
  const body = { name: 'A', systemPrompt: 'x' }
  const { id } = (await request(server, 'POST', '/api/v1/agents', { token, body })).body
  const run = { token, body: { message: 'Hi' } }
  const { executionId } = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, run)).body
  for (const name of ['get', 'update', 'members']) inputs[`organizations.${name}`] = { id: nothing.orgId }
  for (const name of Object.keys(NEEDED).filter((each) => /Invitation|Service/.test(each))) {
    inputs[name] = { id: nothing.orgId, userId: 'none', invitationId: 'none', keyId: 'none' }
  }
  const gone = { id: nothing.orgId, userId: 'none', role: 'member' }
  for (const name of ['updateMember', 'removeMember']) inputs[`organizations.${name}`] = gone
  inputs['organizations.getPolicy'] = { id: nothing.orgId }
  inputs['organizations.listFormer'] = { id: nothing.orgId }
  for (const name of ['listThings', 'takeOver']) inputs[`organizations.${name}`] = { id: nothing.orgId, userId: 'none' }
  inputs['organizations.updatePolicy'] = { id: nothing.orgId }
  for (const name of ['get', 'cancel', 'tree', 'logs']) inputs[`executions.${name}`] = { id: executionId }
  // A stream from now on has no first event.
  inputs['events.follow'] = { since: 'an-example' }
  inputs['executions.events'] = { executionId }
  inputs['approvals.changes'] = { executionId: 'none' }
})

const call = (api: 'REST' | 'tRPC', procedure: string, token: string | null) =>
  apis[api](server, procedure, inputs[procedure] ?? nothing, { token })

it('scopes with unknown names are refused', () => {
  expect(SCOPES.filter((scope) => !isScope(scope))).toEqual([])
  expect(['agents', 'agents:delete', 'agents:*', 'write', '', '**'].filter(isScope)).toEqual([])
})

it('this table has the scopes of every procedure', () => {
  expect(Object.keys(NEEDED).sort()).toEqual(Object.keys(procedures).sort())
})

/** Every procedure with every scope. In the sample each scope also meets each router. */
const CALLS = sample(
  Object.keys(NEEDED).flatMap((procedure) => [...SCOPES, ''].map((scope) => ({ procedure, scope }))),
  ({ procedure, scope }) => [`${procedure.split('.')[0]} ${scope}`],
)

describe('every procedure', () => {
  it.each(Object.entries(NEEDED))('%s accepts a token with %j, and no other', async (procedure, scopes) => {
    const check = async (api: 'REST' | 'tRPC', scope: string) => {
      const answer = await call(api, procedure, tokens.get(scope)!)
      if (suffices(scopes, scope)) expect([200, 400, 404], `${scope}: ${answer.status}`).toContain(answer.status)
      else expectError(answer, 403, FORBIDDEN)
    }
    // The nearest scopes, which the table could confuse with the right ones.
    const near = scopes.map((scope) => scope.replace(/:.*/, (verb) => (verb === ':read' ? ':write' : ':read')))
    const sampled = CALLS.filter((call) => call.procedure === procedure).map(({ scope }) => scope)
    const those = new Set(['', '*', ...scopes, ...near, ...sampled].filter((scope) => tokens.has(scope)))
    await Promise.all([...those].map((scope) => check('tRPC', scope)))
    // The APIs share the check, so an example with and one without the scope suffice.
    await Promise.all(['', ...scopes].map((scope) => check('REST', scope)))
  })
})

it.each(ROUTES)('%s %s accepts a token with %s, and no other', async (method, path, needed) => {
  for (const [scope, token] of tokens) {
    const answer = await request(server, method, path, { token })
    if (suffices([needed], scope)) expect([400, 404, 415]).toContain(answer.status)
    else expectError(answer, 403, FORBIDDEN)
  }
})

it.each(APIS)('%s: checks its scopes before the input', async (api) => {
  const token = tokens.get('usage:read')!
  expectError(await apis[api](server, 'agents.create', { name: 5 }, { token }), 403, FORBIDDEN)
  expectError(await apis[api](server, 'agents.get', { id: 'unknown' }, { token }), 403, FORBIDDEN)
})

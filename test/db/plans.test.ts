import Sqlite from 'better-sqlite3'
import { expect, test } from 'vitest'
import { migrateSqlite } from '../../src/db/sqlite/migrate.ts'
import { apis, procedures } from '../support/api.ts'
import { newLink, setPassword } from '../support/browser-session.ts'
import { createFolder } from '../support/folder.ts'
import { walksOf } from '../support/plan.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

/** Calls every REST route, once or twice; returns the statements. */
async function askForEverything(server: TestServer): Promise<Set<string>> {
  const asked = new Set<string>()
  async function ask(procedure: string, input: object = {}) {
    asked.add(procedure)
    const { status, body } = await apis.REST(server, procedure, { ...input })
    expect(status, `${procedure}: ${JSON.stringify(body)}`).toBe(200)
    return body
  }
  const prompt = { systemPrompt: 'x' }
  const { id: skillId } = await ask('skills.create', { name: 'a-skill', description: 'D', prompt: 'P' })
  const { id: mcpId } = await ask('mcps.create', { name: 'M', url: 'https://example.com/mcp' })
  const { id: helperId } = await ask('agents.create', { name: 'Helper', ...prompt })
  const { id } = await ask('agents.create', { name: 'A', ...prompt, tags: ['a'], subagentIds: [helperId] })
  const { space } = await ask('spaces.create', { name: 'S' })
  const spaceId = space.id
  await ask('spaces.update', { id: spaceId, addAgents: [id], addSkills: [skillId], addMcps: [mcpId] })
  await ask('spaces.update', { id: spaceId, removeMcps: [mcpId] })
  await ask('secrets.set', { id: spaceId, secrets: { KEY: 'v' } })
  await ask('secrets.list', { id: spaceId })
  const { profile } = await ask('profile.get')
  const orgId = profile.organization.id
  await ask('profile.update', { name: 'N' })
  await ask('secrets.setEnv', { orgId, secrets: { KEY: 'v', OTHER: 'v' } })
  await ask('secrets.listEnv', { orgId })
  await ask('files.write', { id: spaceId, path: 'a.txt', content: 'a' })
  for (const procedure of ['files.list', 'files.get']) await ask(procedure, { id: spaceId, path: 'a.txt' })

  const first = await ask('agents.execute', { id, message: 'Hi', spaceId })
  const { executionId, chatId, sessionId } = first
  await ask('agents.execute', { id, message: 'Go on', chatId })
  await ask('agents.execute', { id, message: 'Go on', sessionId })
  const { executionId: started } = await ask('agents.execute', { id, message: 'Later', background: true })
  await apis.REST(server, 'executions.cancel', { id: started })
  asked.add('executions.cancel')
  for (const procedure of ['executions.get', 'executions.tree', 'executions.logs'])
    await ask(procedure, { id: executionId })
  await ask('executions.events', { executionId })
  for (const filter of [
    {},
    { agentId: id },
    { spaceId },
    { chatId },
    { status: 'failed' },
    { agentId: id, status: 'running' },
  ]) {
    await ask('executions.list', filter)
  }

  const { id: taskId } = await ask('tasks.create', { title: 'T', assignedTo: id, spaceId })
  await ask('tasks.execute', { id: taskId })
  const { id: otherTaskId } = await ask('tasks.create', { title: 'T' })
  await ask('tasks.claim', { id: otherTaskId })
  await ask('tasks.update', { id: otherTaskId, title: 'U' })
  await ask('tasks.get', { id: taskId })
  for (const filter of [
    {},
    { status: 'pending' },
    { priority: 'high' },
    { assignedTo: 'me' },
    { assignedTo: 'none' },
    { spaceId },
  ]) {
    await ask('tasks.list', filter)
  }
  await ask('executions.list', { taskId })
  await ask('tasks.delete', { id: taskId })

  const { id: missionId } = await ask('missions.create', { title: 'M', goal: 'G', agentId: id, spaceId })
  await ask('missions.run', { id: missionId })
  const { id: everyDay } = await ask('missions.create', {
    title: 'M',
    goal: 'G',
    agentId: id,
    schedule: { type: 'cron', value: '0 5 * * *' },
  })
  for (const procedure of ['missions.pause', 'missions.resume', 'missions.next', 'missions.get', 'missions.runs']) {
    await ask(procedure, { id: everyDay })
  }
  await ask('missions.update', { id: everyDay, visibility: 'private' })
  await ask('missions.list')
  await ask('executions.list', { missionId })
  await ask('missions.delete', { id: everyDay })

  const { id: secondChat } = await ask('chats.create', { agentId: id, spaceId })
  await ask('chats.update', { id: secondChat, title: 'C' })
  for (const filter of [{}, { agentId: id }, { spaceId }, { status: 'done' }, { mission: 'true' }])
    await ask('chats.list', filter)
  for (const procedure of ['chats.get', 'chats.messages']) await ask(procedure, { id: chatId })
  await ask('chats.delete', { id: secondChat })

  for (const filter of [{}, { owner: 'me' }, { visibility: 'public' }, { tag: 'a' }, { owner: 'me', tag: 'a' }]) {
    await ask('agents.list', filter)
  }
  await ask('agents.update', { id: helperId, visibility: 'public' })
  await ask('agents.listPublic')
  await ask('agents.getPublic', { id: helperId })
  for (const procedure of ['agents.get', 'agents.versions']) await ask(procedure, { id })
  for (const list of ['skills', 'mcps', 'spaces', 'keys', 'media', 'approvals', 'models']) await ask(`${list}.list`)
  await ask('approvals.list', { status: 'pending' })
  await ask('skills.get', { id: skillId })
  await ask('skills.update', { id: skillId, description: 'E' })
  await ask('mcps.get', { id: mcpId })
  await ask('mcps.update', { id: mcpId, name: 'N' })
  await ask('spaces.get', { id: spaceId })
  await setPassword(server, profile.id, 'eleven blue kettles sing')
  await ask('sessions.signIn', { email: profile.email, password: 'eleven blue kettles sing' })
  await ask('sessions.current')
  const { sessions } = await ask('sessions.list')
  await ask('sessions.end', { id: sessions[0].id })
  await ask('sessions.changePassword', { current: 'eleven blue kettles sing', new: 'twelve red kettles whistle' })
  await ask('sessions.useLink', { code: await newLink(server, profile.id) })
  await ask('sessions.forgotPassword', { email: profile.email })
  await ask('sessions.signOut')
  await ask('usage.get', { orgId })
  await ask('organizations.getPolicy', { id: orgId })
  await ask('organizations.list')
  await ask('limits.get')
  const { id: invitationId } = await ask('organizations.createInvitation', {
    id: orgId,
    email: 'a@example.com',
    role: 'member',
  })
  await ask('organizations.listInvitations', { id: orgId })
  await ask('organizations.deleteInvitation', { id: orgId, invitationId })
  const { id: userId } = await ask('organizations.createServiceAccount', { id: orgId, name: 'S', role: 'member' })
  await ask('organizations.updateServiceAccount', { id: orgId, userId, name: 'T' })
  const { id: serviceKey } = await ask('organizations.createServiceKey', { id: orgId, userId, name: 'K' })
  await ask('organizations.listServiceKeys', { id: orgId, userId })
  await ask('organizations.deleteServiceKey', { id: orgId, userId, keyId: serviceKey })
  await ask('organizations.get', { id: orgId })
  await ask('organizations.update', { id: orgId, slug: 'renamed' })
  const now = new Date().toISOString()
  for (const filter of [
    {},
    { action: 'agent.create' },
    { actorId: 'none' },
    { target: id },
    { since: now, until: now },
  ]) {
    await ask('audit.list', filter)
  }
  const { webhook } = await ask('webhooks.create', { url: 'https://hooks.invalid/', events: ['task.created'] })
  await ask('tasks.create', { title: 'Announced' })
  for (const procedure of ['webhooks.get', 'webhooks.rotate', 'webhooks.test']) await ask(procedure, { id: webhook.id })
  await ask('webhooks.list')
  for (const filter of [{}, { status: 'failed' }, { event: 'task.created' }])
    await ask('webhooks.deliveries', { id: webhook.id, ...filter })
  const { deliveries } = await ask('webhooks.deliveries', { id: webhook.id })
  await ask('webhooks.replayDelivery', { id: webhook.id, deliveryId: deliveries[0].id })
  await ask('webhooks.replay', { id: webhook.id, since: now })
  await ask('webhooks.update', { id: webhook.id, url: 'https://hooks.invalid/other' })
  await ask('webhooks.delete', { id: webhook.id })
  for (const filter of [{}, { types: 'task.*' }]) await ask('events.list', filter)
  await ask('profile.update', { notifications: { approvals: true } })
  await ask('organizations.updatePolicy', { id: orgId, attachments: 'latest' })
  await ask('providers.list', { orgId })
  await ask('missions.preview', { schedule: { type: 'cron', value: '0 5 * * *' } })
  const { id: keyId } = await ask('keys.create', { name: 'K' })
  await ask('keys.delete', { id: keyId })
  await ask('files.delete', { id: spaceId, path: 'a.txt' })
  await ask('secrets.deleteOne', { id: spaceId, name: 'KEY' })
  await ask('secrets.deleteOneEnv', { orgId, name: 'KEY' })
  await ask('secrets.deleteEnv', { orgId, keys: ['OTHER'] })
  await ask('skills.delete', { id: skillId })
  await ask('mcps.delete', { id: mcpId })
  await ask('agents.delete', { id: helperId })
  await ask('spaces.delete', { id: spaceId })
  return asked
}

/** Counting scans the counted rows, but in one index only (db/counting.ts). */
const isCount = (sql: string) => /^\s*SELECT (count\(\*\)|sum\("n"\))/.test(sql)

/** Once a minute the server deletes former slugs of organizations, of which there are few. */
const isOfFew = (sql: string) => sql.startsWith('DELETE FROM "FormerSlug" WHERE "endsAt" <')

/** The statements of a server that may read no other rows. */
const checkedOf = ({ queries }: Pick<TestServer, 'queries'>): Set<string> =>
  new Set(queries.filter((sql) => /^\s*(SELECT|UPDATE|DELETE)/.test(sql) && !isCount(sql) && !isOfFew(sql)))

test('no statement of a REST route scans rows that the caller did not ask for', async () => {
  await using server = await startServer()
  server.queries.length = 0
  const asked = await askForEverything(server)
  await server.service.stop()
  const statements = checkedOf(server)
  expect(statements.size).toBeGreaterThan(100)
  for (const sql of statements) expect(walksOf(server, sql), sql).toEqual([])
  const left = Object.keys(procedures).filter((name) => !asked.has(name))
  // Routes that need other set-up, or that run the same statements as those above.
  const known = [
    ...['approvals.approve', 'approvals.deny', 'client.init', 'client.environment', 'client.execute', 'mcps.tools'],
    ...['agents.updateSkill', 'media.get', 'media.delete', 'organizations.listFormer', 'organizations.listThings'],
    ...['mcps.connect', 'mcps.disconnect'],
    ...[
      'approvals.changes',
      'tasks.changes',
      'chats.events',
      'chats.send',
      'client.browseFiles',
      'client.browseSpace',
      'client.createToken',
    ],
    ...['client.deleteFile', 'client.listTokens', 'client.publicAgents', 'client.readFile', 'client.revokeToken'],
    ...['client.writeFile', 'executions.create', 'executions.rerun', 'mcps.catalogue'],
    ...['organizations.create', 'organizations.updateMember', 'organizations.removeMember'],
    'events.follow',
    'organizations.members',
    'organizations.listServiceAccounts',
    'organizations.deleteServiceAccount',
    'sessions.readInvitation',
    'sessions.acceptInvitation',
    ...['organizations.takeOver', 'providers.set', 'providers.delete', 'secrets.delete', 'spaces.updateSkill'],
  ]
  expect(left.toSorted()).toEqual(known.toSorted())
})

test('no chat completion with a picture that comes again scans other rows', async () => {
  await using server = await startServer()
  const { body } = await apis.REST(server, 'agents.create', { name: 'A', systemPrompt: 'x' })
  const picture = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }
  const messages = [{ role: 'user', content: [{ type: 'text', text: 'What is it?' }, picture] }]
  server.queries.length = 0
  for (const _ of [1, 2]) {
    const sent = { model: body.id, messages }
    expect((await request(server, 'POST', '/openai/v1/chat/completions', { body: sent })).status).toBe(200)
  }
  const statements = checkedOf(server)
  expect([...statements].join()).toContain('FROM "Media"')
  for (const sql of statements) expect(walksOf(server, sql), sql).toEqual([])
})

test('SQLite has fixed statistics for every index, restored after ANALYZE, and written only then', async () => {
  await using folder = await createFolder()
  const file = `${folder.path}/muster.db`
  const open = () => new Sqlite(file)
  const statisticsIn = (database: Sqlite.Database) =>
    ['sqlite_stat1', 'sqlite_stat4'].flatMap((table) =>
      database.prepare(`SELECT * FROM "${table}" ORDER BY 1, 2`).all(),
    )
  await migrateSqlite(file)
  using database = Object.assign(open(), { [Symbol.dispose]: () => database.close() })
  const first = statisticsIn(database)
  const indexes = database
    .prepare(
      `SELECT 1 FROM pragma_table_list t JOIN pragma_index_list(t."name")
        WHERE t."schema" = 'main' AND t."type" = 'table' AND t."name" NOT LIKE 'sqlite%'`,
    )
    .all()
  expect(first).toHaveLength(indexes.length)
  expect(first).toContainEqual({
    tbl: 'Session',
    idx: 'Session_organizationId_chatId_createdAt_id_idx',
    stat: '10000000 1000000 10 1 1 noskipscan',
  })
  database.exec('ANALYZE')
  expect(statisticsIn(database)).not.toEqual(first)
  await migrateSqlite(file)
  expect(statisticsIn(database)).toEqual(first)
  const changes = database.pragma('data_version')
  await migrateSqlite(file)
  expect(database.pragma('data_version')).toEqual(changes)
})

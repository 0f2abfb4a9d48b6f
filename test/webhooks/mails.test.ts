import { expect, it } from 'vitest'
import { announce } from '../../src/db/events.ts'
import { createMcp } from '../engine/tool-lab.ts'
import { startMailServer } from '../support/mail-server.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { startModelServer } from '../support/model-server.ts'
import { startReceiver } from '../support/receiver.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const mcp = await use(startMcpServer())
const receiver = await use(startReceiver())
const mail = await use(startMailServer())
const server = await use(
  startServer({
    OPENAI_BASE_URL: model.baseUrl,
    ALLOW_PRIVATE_NETWORK: 'true',
    SMTP_URL: mail.url,
  }),
)
const ann = await server.member({ organization: 'Acme', email: 'ann@example.com' })
const bob = await server.member({ organization: 'Acme', email: 'bob@example.com', role: 'admin' })
const carl = await server.member({ organization: 'Acme', email: 'carl@example.com' })
const dora = await server.member({ organization: 'Acme', email: 'dora@example.com', role: 'admin' })

const call = async (method: string, path: string, { token }: Member, body?: object) =>
  (await request(server, method, `/api/v1${path}`, { token, ...(body && { body }) })).body
const receiversOf = (word: string) =>
  mail.mails
    .filter(({ text }) => text.includes(word))
    .flatMap(({ to }) => to)
    .sort()

it('members who want it get mail of approvals that they can decide, and of failed missions', async () => {
  const notifications = { approvals: true }
  expect((await call('PATCH', '/profile', ann, { notifications })).profile.notifications).toEqual({
    approvals: true,
    missions: false,
  })
  // A member who is no admin gets none of other members' approvals and missions.
  for (const who of [bob, carl, dora])
    await call('PATCH', '/profile', who, { notifications: { approvals: true, missions: true } })
  model.fallback = () => ({ toolCalls: [{ id: 'call', name: 'echo', input: { text: 'A secret input' } }] })
  const mcpId = await createMcp({ url: server.url, token: ann.token }, mcp.url, [{ tool: '*', mode: 'ask' }])
  const asking = { name: 'Asker', systemPrompt: 'x', mcpInstanceIds: [mcpId] }
  const { id } = await call('POST', '/agents', ann, asking)
  await call('POST', `/agents/${id}/execute`, ann, { message: 'Hello', background: true })
  const receivers = ['ann@example.com', 'bob@example.com', 'dora@example.com']
  await expect.poll(() => receiversOf('Asker waits for your approval')).toEqual(receivers)
  for (const who of [ann, dora])
    await call('PATCH', '/profile', who, { notifications: { approvals: false, missions: false } })
  // A run of bob's concerns no other member.
  model.fallback = { error: { status: 400 } }
  const { id: agentId } = await call('POST', '/agents', bob, { name: 'Broken', systemPrompt: 'x' })
  const mission = await call('POST', '/missions', bob, { title: 'Morning news', goal: 'x', agentId })
  await call('POST', `/missions/${mission.id}/run`, bob)
  await expect.poll(() => receiversOf('The mission Morning news failed')).toEqual(['bob@example.com'])
  expect(JSON.stringify(mail.mails)).not.toContain('secret')
  expect(mail.mails.flatMap(({ to }) => to)).not.toContain('carl@example.com')
})

it('the owner of a webhook gets mail when it is disabled', async () => {
  receiver.answer = (response) => response.writeHead(410).end()
  const { webhook } = await call('POST', '/webhooks', bob, { url: receiver.url, events: ['task.created'] })
  await call('POST', '/tasks', ann, { title: 'T' })
  await expect.poll(() => receiversOf('Webhook disabled')).toEqual(['bob@example.com'])
  expect((await call('GET', `/webhooks/${webhook.id}`, bob)).webhook.enabled).toBe(false)
})

it('the owners get the mail about a webhook of a service account, which has no mailbox', async () => {
  const { organizationId } = await server.member({ organization: 'Acme', email: 'olga@example.com', role: 'owner' })
  const accounts = `/organizations/${organizationId}/service-accounts`
  const { id } = await call('POST', accounts, bob, { name: 'CI', role: 'admin' })
  const { token } = await call('POST', `${accounts}/${id}/keys`, bob, { name: 'CI' })
  receiver.answer = (response) => response.writeHead(410).end()
  const webhook = { url: `${receiver.url}/ci`, description: 'Hook of CI', events: ['task.created'] }
  await call('POST', '/webhooks', { ...bob, token }, webhook)
  await call('POST', '/tasks', ann, { title: 'T' })
  await expect.poll(() => receiversOf('Webhook disabled: Hook of CI')).toEqual(['olga@example.com'])
})

it('a mail has no event of more than an hour ago, and only what its member administers', async () => {
  const { id: agentId } = await call('POST', '/agents', bob, { name: 'Late', systemPrompt: 'x' })
  const news = async (title: string, age: number) => {
    const { id } = await call('POST', '/missions', bob, { title, goal: 'x', agentId, visibility: 'organization' })
    const at = new Date(Date.now() - age)
    const event = { organizationId: bob.organizationId, type: 'mission.run_failed', subjectId: id, at, data: {} }
    await server.service.deps.db.$transaction((tx) => announce(tx, event))
  }
  await news('Old news', 61 * 60_000)
  await news('Late news', 59 * 60_000)
  await expect.poll(() => receiversOf('The mission Late news failed')).toEqual(['bob@example.com'])
  // All mails of a pass are sent before the next pass.
  await news('Last news', 0)
  await expect.poll(() => receiversOf('The mission Last news failed')).toContain('bob@example.com')
  expect(receiversOf('Old news')).toEqual([])
  expect(receiversOf('Late news')).toEqual(['bob@example.com'])
})

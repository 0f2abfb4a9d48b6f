import { expect, it } from 'vitest'
import { chatTools } from '../../src/chats/tools.ts'
import { request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callTool, startLab } from './lab.ts'

const lab = await use(startLab())
const ann = await lab.server.member({ organization: 'Acme' })
const ben = await lab.server.member({ organization: 'Acme' })
const eve = await lab.server.member({ organization: 'Other' })

const say = async (who: Member, message: string, fields: object = {}) => {
  const id = await lab.agent(who, { name: 'Talker', ...fields })
  const { status, body } = await request(lab.server, 'POST', `/api/v1/agents/${id}/execute`, {
    token: who.token,
    body: { message, model: 'offline/echo' },
  })
  expect(status, JSON.stringify(body)).toBe(200)
}

const search = async (who: Member, input: object, scopes?: string) => {
  const tools = chatTools(lab.server.service.deps, await lab.user(who, await lab.agent(who), undefined, scopes))
  return callTool(tools, 'search_chats', input)
}

it('search_chats finds what the user may see, and nothing of others', async () => {
  await say(ann, 'The Falcon flies at noon')
  await say(ben, 'A falcon of my own', { visibility: 'private' })
  await say(eve, 'Falcon elsewhere')
  const texts = async (who: Member) =>
    (await search(who, { query: 'falcon', limit: 20 })).messages.map(({ text }: { text: string }) => text)
  const ofAnn = await texts(ann)
  expect(ofAnn).toContain('The Falcon flies at noon')
  expect(JSON.stringify(ofAnn)).not.toMatch(/my own|elsewhere/)
  expect(await texts(ben)).toEqual(expect.arrayContaining(['The Falcon flies at noon', 'A falcon of my own']))
  expect(JSON.stringify(await texts(eve))).not.toMatch(/noon|my own/)
})

it('search_chats returns an excerpt around the match, newest first, up to the limit', async () => {
  await say(ann, `${'x'.repeat(2_000)} needle ${'y'.repeat(2_000)}`)
  await say(ann, 'needle again')
  const { messages } = await search(ann, { query: 'needle', limit: 1 })
  expect(messages).toHaveLength(1)
  expect(messages[0]).toMatchObject({ chatTitle: 'needle again', text: expect.stringContaining('needle') })
  const all = (await search(ann, { query: 'needle', limit: 20 })).messages
  for (const { text } of all) expect(text.length).toBeLessThanOrEqual(400)
  expect(all.every(({ text }: { text: string }) => text.includes('needle'))).toBe(true)
})

it('search_chats needs the scope chats:read', async () => {
  await expect(search(ann, { query: 'needle' }, 'agents:execute')).rejects.toMatchObject({ status: 403 })
})

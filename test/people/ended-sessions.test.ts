import { beforeAll, expect, it } from 'vitest'
import type { Actor } from '../../src/auth/actor.ts'
import { createRevocations } from '../../src/auth/revocations.ts'
import { createLocalBus } from '../../src/bus/local.ts'
import { signedIn } from '../support/browser-session.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/** A chat that every member may follow. */
let chatId: string
const model = await use(startModelServer())
const server = await use(startServer(model.env))
beforeAll(async () => {
  const body = { name: 'Ada', systemPrompt: 'x' }
  const { id } = (await request(server, 'POST', '/api/v1/agents', { body })).body
  model.script({ tokens: 'Hi.' })
  const run = await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi' } })
  chatId = run.body.chatId
})

type Ending = (who: Member, sessionId: string) => Promise<unknown>
const membership = ({ organizationId, userId }: Member) => ({ organizationId, userId })

const ENDINGS: [string, Ending][] = [
  [
    'its session is ended from another browser',
    async ({ userId }, id) => {
      const { headers } = await signedIn(server, userId)
      const answer = await request(server, 'DELETE', `/api/auth/sessions/${id}`, { token: null, headers })
      expect(answer.status).toBe(200)
    },
  ],
  ['another process ends its session', (_, id) => server.service.deps.db.browserSession.deleteMany({ where: { id } })],
  [
    'its session expires',
    (_, id) => server.service.deps.db.browserSession.updateMany({ where: { id }, data: { expiresAt: new Date(0) } }),
  ],
  [
    'the membership of its user ends',
    (who) => server.service.deps.db.membership.deleteMany({ where: membership(who) }),
  ],
  [
    'its user is no admin any more',
    (who) => server.service.deps.db.membership.updateMany({ where: membership(who), data: { role: 'member' } }),
  ],
]

it.concurrent.each(ENDINGS)('the open streams of a browser end soon after %s', async (_, end) => {
  const who = await server.member({ role: 'admin' })
  const { id, headers } = await signedIn(server, who.userId)
  const input = encodeURIComponent(JSON.stringify({ id: chatId }))
  const streams = await Promise.all(
    [`/api/v1/chats/${chatId}/events`, `/trpc/chats.events?input=${input}`].map((path) =>
      fetch(server.url + path, { headers: { ...headers, Accept: 'text/event-stream' } }),
    ),
  )
  for (const stream of streams) expect(stream.status).toBe(200)
  await end(who, id)
  await Promise.all(streams.map((stream) => stream.text().catch(() => 'broken off')))
})

it.concurrent('a session that has expired ends its streams, although its row is still there', async ({ expect }) => {
  const { userId, organizationId } = await server.member()
  const { id: sessionId } = await signedIn(server, userId)
  const bus = createLocalBus()
  // Nothing else sees this clock, and deletes the row.
  const clock = { now: () => new Date(Date.now() + 31 * 24 * 60 * 60_000) }
  const revocations = createRevocations({ ...server.service.deps, bus, clock })
  const actor = { userId, organizationId, sessionId, role: 'member', organizationSlug: '', scopes: ['*'], tokenId: '' }
  const signal = revocations.watch(actor as Actor, new AbortController())
  try {
    bus.publish('token', [sessionId])
    await expect.poll(() => signal.aborted).toBe(true)
  } finally {
    revocations.stop()
  }
})

it.concurrent('a waiting request gets 401 soon after the session of its browser has ended', async () => {
  const who = await server.member()
  const { id, headers } = await signedIn(server, who.userId)
  const body = { name: 'Slow', systemPrompt: 'x' }
  const created = await request(server, 'POST', '/api/v1/agents', { token: null, headers, body })
  model.script({ tokens: ['one '], end: 'hang' })
  const asked = model.request(model.requests.length)
  const execute = `/api/v1/agents/${created.body.id}/execute`
  const answer = request(server, 'POST', execute, { token: null, headers, body: { message: 'Hi' } })
  await asked
  await server.service.deps.db.browserSession.deleteMany({ where: { id } })
  expect(await answer).toMatchObject({ status: 401, body: { message: 'Sign in required', code: 'sign_in_required' } })
})

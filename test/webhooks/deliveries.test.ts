import { Client } from 'pg'
import { Webhook } from 'standardwebhooks'
import { afterEach, describe, expect, it } from 'vitest'
import type { Actor } from '../../src/auth/actor.ts'
import type { Db, Prisma, Tx } from '../../src/db/client.ts'
import { announce } from '../../src/db/events.ts'
import { overrideMembers } from '../../src/db/override-members.ts'
import type { Deps } from '../../src/deps.ts'
import { bodyOf } from '../../src/protocols/a2a/push.ts'
import { readSettings } from '../../src/settings.ts'
import { createDeliverer } from '../../src/webhooks/deliverer.ts'
import { test } from '../../src/webhooks/deliveries.ts'
import { disable } from '../../src/webhooks/fan-out.ts'
import { bodyOf as messageOf } from '../../src/webhooks/formats.ts'
import { removeOld } from '../../src/webhooks/retention.ts'
import { createSender } from '../../src/webhooks/send.ts'
import { create as createWebhook, rotate, update } from '../../src/webhooks/service.ts'
import { callerAt } from '../support/api.ts'
import { movableClock } from '../support/clock.ts'
import { FORBIDDEN_HOSTS } from '../support/forbidden-hosts.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { type Receiver, startReceiver } from '../support/receiver.ts'
import { credentialsOf, request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE

const clock = movableClock()
const receiver = await use(startReceiver())
const server = await use(startServer({ ALLOW_PRIVATE_NETWORK: 'true' }, { clock }))
const ann = await server.member({ organization: 'Acme', role: 'admin' })
const bob = await server.member({ organization: 'Acme', role: 'admin' })
afterEach(async () => {
  receiver.answer = null
  await server.service.deps.db.webhook.deleteMany({ where: { organizationId: ann.organizationId } })
})

const call = callerAt(server, ann)

let paths = 0
/** Creates a webhook with a unique path. */
async function hook(fields: object = {}, who = ann) {
  const path = `/${++paths}`
  const body = { url: receiver.url + path, events: ['*'], ...fields }
  const answer = await call('POST', '/webhooks', body, who)
  expect(answer.status).toBe(200)
  return { path, id: answer.body.webhook.id as string, secret: answer.body.secret as string }
}

const task = async (fields: object = {}, who = ann) =>
  (await call('POST', '/tasks', { title: 'Write', ...fields }, who)).body.task as { id: string }
const deliveries = async (id: string, query = '') =>
  (await call('GET', `/webhooks/${id}/deliveries${query}`)).body.deliveries

describe('A delivery', () => {
  it('is signed for an independent verifier, and has its subject without the content', async () => {
    const { path, id, secret } = await hook({ events: ['task.created'] })
    const { id: taskId } = await task({ description: 'A secret description' })
    await expect.poll(() => receiver.at(path).length).toBe(1)
    const [{ headers, text }] = receiver.at(path) as [Receiver['received'][number]]
    const body = new Webhook(secret).verify(text, headers as Record<string, string>) as any
    expect(body).toMatchObject({ type: 'task.created', organizationId: ann.organizationId })
    expect(body.data).toMatchObject({ id: taskId, title: 'Write', status: 'pending' })
    expect(text).not.toContain('A secret description')
    expect(headers['webhook-id']).toBe(body.id)
    await expect
      .poll(() => deliveries(id))
      .toMatchObject([
        { status: 'delivered', event: 'task.created', eventId: body.id, subjectId: taskId, nextAttemptAt: null },
      ])
    expect((await deliveries(id))[0].attempts).toMatchObject([{ status: 204, response: '' }])
  })

  it('carries the signatures of both secrets for a day after a rotation', async () => {
    const { path, id, secret } = await hook({ events: ['task.created'] })
    const rotated = (await call('POST', `/webhooks/${id}/rotate`)).body
    expect(rotated.secret).not.toBe(secret)
    await task()
    await expect.poll(() => receiver.at(path).length).toBe(1)
    const { text, headers } = receiver.at(path)[0]!
    expect(String(headers['webhook-signature']).split(' ')).toHaveLength(2)
    const verify = (key: string, of: Receiver['received'][number]) =>
      new Webhook(key).verify(of.text, of.headers as Record<string, string>)
    for (const key of [secret, rotated.secret]) expect(verify(key, { text, headers } as never)).toMatchObject({})
    clock.advance(25 * HOUR)
    await task()
    await expect.poll(() => receiver.at(path).length).toBe(2)
    expect(String(receiver.at(path)[1]!.headers['webhook-signature']).split(' ')).toHaveLength(1)
  })

  it('is tried again by the schedule until its receiver accepts it, with the same id', async () => {
    const { path, id } = await hook({ events: ['task.created'] })
    receiver.answer = (response) => response.writeHead(500).end('Broken')
    await task()
    const attempts = async () => (await deliveries(id))[0]?.attempts ?? []
    await expect.poll(async () => (await attempts()).length).toBe(1)
    for (const [count, delay] of [6_000, 6 * MINUTE, 34 * MINUTE, 2.3 * HOUR].entries()) {
      clock.advance(delay)
      await expect.poll(async () => (await attempts()).length).toBe(count + 2)
    }
    expect((await attempts())[0]).toMatchObject({
      status: 500,
      response: 'Broken',
      error: 'The answer has the status 500',
    })
    receiver.answer = null
    clock.advance(6 * HOUR)
    await expect.poll(() => deliveries(id)).toMatchObject([{ status: 'delivered' }])
    expect(new Set(receiver.at(path).map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  })

  it('waits for the time that Retry-After asks for', async () => {
    const { path, id } = await hook({ events: ['task.created'] })
    const [{ id: patient }, year] = [await hook({ events: ['task.created'] }), 365 * 24 * 3600]
    receiver.answer = (response, request) =>
      response.writeHead(429, { 'Retry-After': String(request.path === path ? 3600.25 : year) }).end()
    await task()
    const delayOf = async (webhook: string) => {
      await expect.poll(async () => (await deliveries(webhook))[0]?.attempts.length).toBe(1)
      const [{ nextAttemptAt }] = await deliveries(webhook)
      return Date.parse(nextAttemptAt) - clock.now().getTime()
    }
    expect(await delayOf(id)).toBeGreaterThan(59 * MINUTE)
    // A day at most.
    expect(Math.round((await delayOf(patient)) / HOUR)).toBe(24)
    receiver.answer = null
    clock.advance(61 * MINUTE)
    await expect.poll(() => receiver.at(path).length).toBe(2)
  })

  it('follows no redirect, and reads no more than 1 KB of an answer without end', async () => {
    const { id, path } = await hook({ events: ['task.created'] })
    receiver.answer = (response) => response.writeHead(302, { Location: `${receiver.url}/elsewhere` }).end()
    await task()
    await expect
      .poll(async () => (await deliveries(id))[0]?.attempts)
      .toMatchObject([{ status: 302, error: 'Redirects are not followed' }])
    expect(receiver.at('/elsewhere')).toEqual([])
    let written = 0
    receiver.answer = (response) => {
      response.writeHead(500)
      const more = () => {
        while (!response.destroyed && response.write('x'.repeat(64 * 1024))) written += 64 * 1024
      }
      response.on('drain', more).on('error', () => {})
      more()
    }
    clock.advance(MINUTE)
    await expect.poll(async () => (await deliveries(id))[0]?.attempts.length).toBe(2)
    expect((await deliveries(id))[0].attempts[1].response).toBe('x'.repeat(1024))
    expect(written).toBeLessThan(16 * 1024 * 1024)
    expect(receiver.at(path)).toHaveLength(2)
  })

  it('fails with a stored reason if the receiver closes the connection or is unreachable', async () => {
    const { id } = await hook({ events: ['task.created'] })
    receiver.answer = (response) => response.socket?.destroy()
    await task()
    await expect
      .poll(async () => (await deliveries(id))[0]?.attempts)
      .toMatchObject([{ status: null, error: expect.stringMatching(/./) }])
    const unreachable = await hook({ url: 'http://127.0.0.1:1/', events: ['task.created'] })
    await task()
    await expect
      .poll(async () => (await deliveries(unreachable.id))[0]?.attempts)
      .toMatchObject([{ status: null, error: expect.stringMatching(/ECONNREFUSED|bad port/) }])
  })

  it('is sent at most four at a time, and a receiver that hangs delays no other', async () => {
    const hanging = await hook({ events: ['task.created'] })
    const other = await hook({ events: ['task.created'] })
    const open: (() => void)[] = []
    receiver.answer = (response, { path }) =>
      path === hanging.path ? void open.push(() => response.writeHead(204).end()) : response.writeHead(204).end()
    for (let left = 6; left; left--) await task()
    await expect.poll(() => receiver.at(other.path).length).toBe(6)
    await expect.poll(() => receiver.at(hanging.path).length).toBe(4)
    receiver.answer = null
    for (const end of open) end()
    await expect.poll(() => receiver.at(hanging.path).length).toBe(6)
  })

  it('has the content of its subject if the webhook asks for it', async () => {
    const { path } = await hook({ events: ['task.created'], includeContent: true })
    await task({ description: 'All of it' })
    await expect.poll(() => receiver.at(path).length).toBe(1)
    expect(receiver.at(path)[0]!.body.data.description).toBe('All of it')
  })

  it('has the beginnings of texts that are too long together', async () => {
    const { path } = await hook({ events: ['execution.completed'], includeContent: true })
    const agent = await call('POST', '/agents', { name: 'Ada', systemPrompt: 'You are Ada.' })
    const message = '"'.repeat(150_000)
    expect((await call('POST', `/agents/${agent.body.id}/execute`, { message })).status).toBe(200)
    await expect.poll(() => receiver.at(path).length).toBe(1)
    expect(receiver.at(path)[0]!.body.data).toMatchObject({ message: message.slice(0, 4000), truncated: true })
  })

  it('omits private resources of other users', async () => {
    const { path } = await hook({ events: ['agent.*', 'task.created'], includeContent: true })
    await call('POST', '/agents', { name: 'Private', systemPrompt: 'x', visibility: 'private' }, bob)
    await call('POST', '/agents', { name: 'Shared', systemPrompt: 'x' }, bob)
    await task()
    await expect.poll(() => receiver.at(path).length).toBe(2)
    expect(
      receiver
        .at(path)
        .map(({ body }) => body.data.name ?? body.data.title)
        .sort(),
    ).toEqual(['Shared', 'Write'])
  })

  it('has its latest 50 attempts, however often it is replayed', async () => {
    const { id } = await hook({ events: ['task.created'] })
    await task()
    await expect.poll(() => deliveries(id)).toMatchObject([{ status: 'delivered' }])
    const [{ id: deliveryId, attempts }] = await deliveries(id)
    const many = Array.from({ length: 50 }, (_, index) => ({ ...attempts[0], durationMs: index }))
    const { db } = server.service.deps
    await db.webhookDelivery.update({ where: { id: deliveryId }, data: { attempts: many } })
    await call('POST', `/webhooks/${id}/deliveries/${deliveryId}/replay`)
    await expect.poll(async () => (await deliveries(id))[0].attempts[0].durationMs).toBe(1)
    expect((await deliveries(id))[0].attempts).toHaveLength(50)
  })

  it('can be replayed, one or all failed ones, with the same id', async () => {
    const { path, id } = await hook({ events: ['task.created'] })
    await task()
    await expect.poll(() => deliveries(id)).toMatchObject([{ status: 'delivered' }])
    const [{ id: deliveryId, createdAt, eventId }] = await deliveries(id)
    expect((await call('POST', `/webhooks/${id}/deliveries/${deliveryId}/replay`)).status).toBe(200)
    await expect.poll(() => receiver.at(path).length).toBe(2)
    await expect.poll(async () => (await deliveries(id))[0].attempts.length).toBe(2)
    await server.service.deps.db.webhookDelivery.updateMany({
      where: { id: deliveryId },
      data: { status: 'failed', nextAttemptAt: null },
    })
    const replay = await call('POST', `/webhooks/${id}/replay`, { since: createdAt, status: 'failed' })
    expect(replay.body.count).toBe(1)
    await expect.poll(() => receiver.at(path).length).toBe(3)
    expect(new Set(receiver.at(path).map(({ headers }) => headers['webhook-id']))).toEqual(new Set([eventId]))
  })
})

describe('A webhook', () => {
  const disabled = (id: string) => expect.poll(async () => (await call('GET', `/webhooks/${id}`)).body.webhook)

  it('is disabled by 410, and an event tells the others', async () => {
    const { id } = await hook({ events: ['task.created'] })
    const other = await hook({ events: ['webhook.*'] })
    await task()
    await expect.poll(() => deliveries(id)).toMatchObject([{ status: 'delivered' }])
    receiver.answer = (response, { path }) => response.writeHead(path === other.path ? 204 : 410).end()
    await task()
    await disabled(id).toMatchObject({ enabled: false, disabledReason: 'It answered 410 Gone' })
    // Another server, whose attempt fails later, changes nothing and announces nothing.
    const { db } = server.service.deps
    expect(await disable(db, { id, organizationId: ann.organizationId }, 'Later', clock.now())).toBeNull()
    expect(await db.auditEvent.count({ where: { action: 'webhook.disable', target: id } })).toBe(1)
    await expect.poll(() => receiver.at(other.path).length).toBe(1)
    expect(receiver.at(other.path)[0]!.body).toMatchObject({ type: 'webhook.disabled', data: { id } })
    expect(await deliveries(id)).toMatchObject([{ status: 'failed', nextAttemptAt: null }, { status: 'delivered' }])
    expect((await call('POST', `/webhooks/${id}/test`)).status).toBe(409)
  })

  it('is changed and deleted alone, and shows its address', async () => {
    const [one, other] = [await hook(), await hook()]
    const before = (await call('GET', `/webhooks/${other.id}`)).body
    expect(before.webhook.url).toBe(receiver.url + other.path)
    await call('PATCH', `/webhooks/${one.id}`, { description: 'Changed', url: `${receiver.url}/changed` })
    // The present values are no change.
    await call('PATCH', `/webhooks/${one.id}`, { description: 'Changed', enabled: true })
    const where = { action: 'webhook.update', target: one.id }
    expect(await server.service.deps.db.auditEvent.count({ where })).toBe(1)
    expect((await call('GET', `/webhooks/${other.id}`)).body).toEqual(before)
    expect((await call('DELETE', `/webhooks/${one.id}`)).status).toBe(200)
    expect((await call('GET', `/webhooks/${other.id}`)).body).toEqual(before)
    expect((await call('DELETE', `/webhooks/${one.id}`)).status).toBe(404)
  })

  it('is gone at once when it is deleted, and its deliveries follow in parts of 500', async () => {
    const { deps } = server.service
    const { id, path } = await hook()
    await task()
    await expect.poll(() => receiver.at(path).length).toBe(1)
    const row = (await deps.db.webhookDelivery.findFirstOrThrow({ where: { webhookId: id } })) as object
    const copies = Array.from({ length: 1_001 }, (_, index) => ({ ...row, id: `copy-${index}`, status: 'pending' }))
    await deps.db.$transaction((tx) => tx.webhookDelivery.createMany({ data: copies as never }))
    const deletion = await server.statementsOf(() => call('DELETE', `/webhooks/${id}`))
    expect(deletion.filter((sql) => /^DELETE/.test(sql))).toEqual([])
    expect((await call('GET', `/webhooks/${id}`)).status).toBe(404)
    expect((await call('GET', `/webhooks/${id}/deliveries`)).status).toBe(404)
    expect((await call('GET', '/webhooks')).body.webhooks.map((each: { id: string }) => each.id)).not.toContain(id)
    const parts: number[] = []
    const $executeRaw = async (sql: Prisma.Sql) => {
      const count = await deps.db.$executeRaw(sql)
      parts.push(count)
      return count
    }
    await removeOld({ db: overrideMembers(deps.db, { $executeRaw }) as Db, clock })
    expect(await deps.db.webhook.count({ where: { id } })).toBe(0)
    expect(await deps.db.webhookDelivery.count({ where: { webhookId: id } })).toBe(0)
    expect(Math.max(...parts)).toBe(500)
    expect(receiver.at(path)).toHaveLength(1)
  })

  it('gets no private address by a change either', async () => {
    const { deps } = server.service
    const { id } = await hook()
    const actor = await deps.actors.of(credentialsOf(`Bearer ${ann.token}`))
    const settings = { ...deps.settings, ALLOW_PRIVATE_NETWORK: false }
    const changed = update(actor, { ...deps, settings }, { id, url: 'http://[::ffff:127.0.0.1]/' })
    await expect(changed).rejects.toThrow('Must not be a private address')
  })

  it('is one of at most 100 of its organization', async () => {
    const who = await server.member({ organization: 'Many', role: 'admin' })
    const { deps } = server.service
    const actor = await deps.actors.of(credentialsOf(`Bearer ${who.token}`))
    const create = () => createWebhook(actor, deps, { url: receiver.url, events: ['*'], enabled: false })
    for (let left = 100; left; left--) await create()
    await expect(create()).rejects.toThrow('Too many webhooks')
  })

  it.each([
    ['tested', test],
    ['given a new secret', rotate],
    ['changed', (actor: Actor, deps: Deps, id: string) => update(actor, deps, { id, description: 'Changed' })],
  ])('is unknown if it is deleted while it is %s', async (_, change) => {
    const { deps } = server.service
    const { id } = await hook()
    const actor = await deps.actors.of(credentialsOf(`Bearer ${ann.token}`))
    const db = overrideMembers(deps.db, {
      $transaction: async (work: (tx: Tx) => Promise<unknown>) => {
        expect((await call('DELETE', `/webhooks/${id}`)).status).toBe(200)
        return deps.db.$transaction(work)
      },
    }) as Db
    await expect(change(actor, { ...deps, db }, id)).rejects.toMatchObject({ status: 404 })
  })

  it('never reports itself: neither what it delivers, nor that it was disabled', async () => {
    const { id, path } = await hook({ events: ['webhook.*'] })
    const gone = async (webhook: { id: string; path: string }, calls: number) => {
      receiver.answer = (response, request) => response.writeHead(request.path === webhook.path ? 410 : 204).end()
      await call('POST', `/webhooks/${webhook.id}/test`)
      await expect.poll(() => receiver.at(webhook.path).length).toBe(calls)
      await disabled(webhook.id).toMatchObject({ enabled: false })
    }
    await gone({ id, path }, 1)
    await call('PATCH', `/webhooks/${id}`, { enabled: true })
    const other = await hook({ events: ['task.created'] })
    await gone(other, 1)
    await expect.poll(() => receiver.at(path).length).toBe(2)
    expect(receiver.at(path)[1]!.body).toMatchObject({ type: 'webhook.disabled', data: { id: other.id } })
    expect((await deliveries(id)).map(({ event }: { event: string }) => event).sort()).toEqual([
      'webhook.disabled',
      'webhook.test',
    ])
  })

  it('is disabled once it has failed for five days', async () => {
    const { id, path } = await hook({ events: ['task.created'] })
    receiver.answer = (response) => response.writeHead(500).end()
    await task()
    await expect.poll(async () => (await call('GET', `/webhooks/${id}`)).body.webhook.failingSince).toBeTruthy()
    clock.advance(4 * 24 * HOUR)
    await expect.poll(() => receiver.at(path).length).toBe(2)
    await expect.poll(async () => (await deliveries(id))[0].attempts.length).toBe(2)
    expect((await call('GET', `/webhooks/${id}`)).body.webhook.enabled).toBe(true)
    clock.advance(25 * HOUR)
    await disabled(id).toMatchObject({ enabled: false, disabledReason: 'It has failed for 5 days' })
  })

  it('has a day to recover after the service was away, before it is disabled', async () => {
    const { id, path } = await hook({ events: ['task.created'] })
    receiver.answer = (response) => response.writeHead(500).end()
    await task()
    await expect.poll(async () => (await call('GET', `/webhooks/${id}`)).body.webhook.failingSince).toBeTruthy()
    clock.advance(6 * 24 * HOUR)
    await expect.poll(() => receiver.at(path).length).toBe(2)
    await expect.poll(async () => (await deliveries(id))[0].attempts.length).toBe(2)
    await task()
    clock.advance(2 * MINUTE)
    await expect.poll(async () => (await deliveries(id))[0].attempts.length).toBe(1)
    expect((await call('GET', `/webhooks/${id}`)).body.webhook.enabled).toBe(true)
    clock.advance(25 * HOUR)
    await disabled(id).toMatchObject({ enabled: false, disabledReason: 'It has failed for 5 days' })
  })

  it('is disabled when its owner is no longer an admin, and belongs to the admin who enables it', async () => {
    const { id } = await hook({ events: ['task.created'] }, bob)
    const { db } = server.service.deps
    const membership = { organizationId_userId: { organizationId: bob.organizationId, userId: bob.userId } }
    await db.membership.update({ where: membership, data: { role: 'member' } })
    await disabled(id).toMatchObject({ enabled: false, ownerId: bob.userId })
    await db.membership.update({ where: membership, data: { role: 'admin' } })
    const { body } = await call('PATCH', `/webhooks/${id}`, { enabled: true })
    expect(body.webhook).toMatchObject({ enabled: true, disabledReason: null, ownerId: ann.userId })
  })

  it('gets no further attempt of a delivery that waits once its owner is no longer an admin', async () => {
    receiver.answer = (response) => response.writeHead(500).end()
    const { id, path } = await hook({ events: ['task.created'] }, bob)
    await task()
    await expect.poll(async () => (await deliveries(id))[0]?.attempts.length).toBe(1)
    const membership = { organizationId_userId: { organizationId: bob.organizationId, userId: bob.userId } }
    const { db } = server.service.deps
    await db.membership.update({ where: membership, data: { role: 'member' } })
    clock.advance(HOUR)
    await disabled(id).toMatchObject({ enabled: false })
    await db.membership.update({ where: membership, data: { role: 'admin' } })
    expect(receiver.at(path)).toHaveLength(1)
    expect(await deliveries(id)).toMatchObject([{ status: 'failed', nextAttemptAt: null }])
  })

  it('gets a test event, and no events from the time when it was disabled', async () => {
    const { id, path } = await hook({ events: ['task.created'], enabled: false })
    await task({ title: 'Missed' })
    await call('PATCH', `/webhooks/${id}`, { enabled: true })
    await call('POST', `/webhooks/${id}/test`)
    await task({ title: 'Sent' })
    await expect.poll(() => receiver.at(path).length).toBe(2)
    expect(
      receiver
        .at(path)
        .map(({ body }) => body.type)
        .sort(),
    ).toEqual(['task.created', 'webhook.test'])
    expect(JSON.stringify(receiver.at(path))).not.toContain('Missed')
  })

  it.each([
    ['slack', (body: any) => [body.text, body.blocks[1].elements[0].url]],
    ['discord', (body: any) => [body.content, body.embeds[0].url, body.allowed_mentions]],
    ['teams', (body: any) => [body.attachments[0].content.body[1].text, body.attachments[0].content.actions[0].url]],
  ])('A webhook of %s gets messages that link to the console, and does not show its address', async (format, read) => {
    const { id, path } = await hook({ events: ['task.created'], format })
    await task({ title: '<!channel> *Hi*' })
    await expect.poll(() => receiver.at(path).length).toBe(1)
    const expected: Record<string, unknown[]> = {
      slack: ['Task created: &lt;!channel&gt; *Hi*', expect.stringMatching(/\/app\/tasks$/)],
      discord: ['**Task created**: \\<!channel\\> \\*Hi\\*', expect.stringMatching(/\/app\/tasks$/), { parse: [] }],
      teams: ['\\<!channel\\> \\*Hi\\*', expect.stringMatching(/\/app\/tasks$/)],
    }
    expect(read(receiver.at(path)[0]!.body)).toEqual(expected[format])
    const url = (await call('GET', `/webhooks/${id}`)).body.webhook.url
    expect(url).toBe(`${receiver.url}/…${(receiver.url + path).slice(-4)}`)
  })

  it.each(['slack', 'discord', 'teams'] as const)('A webhook of %s cuts a long text between emoji', (format) => {
    const data = { id: 'exec-1', result: `${'x'.repeat(998)}\u{1f469}\u200d\u{1f469}\u200d\u{1f467}` }
    const common = { id: 'evt-1', sequence: 1, organizationId: 'acme', timestamp: '2026-01-01T00:00:00Z' }
    const event = { ...common, type: 'execution.completed', data }
    const body = JSON.stringify(messageOf(format, server.url, event))
    expect([body.includes('x'.repeat(998)), body.includes('\u{1f469}')]).toEqual([true, false])
  })

  it.runIf(onPostgres)('gets no event from before it was enabled, though an older transaction is open', async () => {
    const older = new Client({ connectionString: server.databaseEnv.DATABASE_URL })
    await older.connect()
    await older.query('BEGIN; SELECT pg_current_xact_id()')
    await task({ title: 'before' })
    const looks = () => server.queries.filter((sql) => sql.includes('AS "isSettled"')).length
    const before = looks()
    const hooked = hook({ events: ['task.created'] })
    await expect.poll(looks).toBeGreaterThan(before + 1)
    await older.end()
    const { path } = await hooked
    const after = await task({ title: 'after' })
    await expect.poll(() => receiver.at(path).map(({ body }) => body.data.id)).toEqual([after.id])
  })

  it('A webhook of a chat service stays secret where its answer repeats the address', async () => {
    receiver.answer = (response, { path }) => {
      const body = { error: `Cannot POST ${path}`, token: path.split('/').at(-1) }
      response.writeHead(404).end(JSON.stringify(body).replaceAll('/', '\\/'))
    }
    const url = `${receiver.url}/services/T0001/a-secret-token`
    const { id } = await hook({ events: ['task.created'], format: 'slack', url })
    await task()
    await expect.poll(async () => (await deliveries(id))[0]?.attempts.length).toBe(1)
    const [{ response }] = (await deliveries(id))[0].attempts
    expect(response).toContain('Cannot POST')
    expect(response).not.toMatch(/secret|T0001/)
  })

  it('is for admins, and another organization cannot see it', async () => {
    const { id } = await hook()
    const member = await server.member({ organization: 'Acme' })
    const eve = await server.member({ organization: 'Elsewhere', role: 'owner' })
    const paths = ['/webhooks', `/webhooks/${id}`, `/webhooks/${id}/deliveries`]
    for (const path of paths) expect((await call('GET', path, undefined, member)).status).toBe(403)
    for (const path of paths.slice(1)) expect((await call('GET', path, undefined, eve)).status).toBe(404)
    expect((await call('GET', '/webhooks', undefined, eve)).body.webhooks).toEqual([])
    expect((await call('POST', '/webhooks', { url: receiver.url, events: ['*'] }, member)).status).toBe(403)
  })

  it('needs the scopes of the content that it is to send', async () => {
    const token = await server.member({ organization: 'Acme', role: 'admin', scopes: ['webhooks:write'] })
    const body = { url: receiver.url, events: ['*'] }
    expect((await call('POST', '/webhooks', { ...body, includeContent: true }, token)).status).toBe(403)
    expect((await call('POST', '/webhooks', body, token)).status).toBe(200)
  })

  it("changes its owner with its address, so that no other user's events reach it", async () => {
    const { id } = await hook()
    const described = await call('PATCH', `/webhooks/${id}`, { description: 'Ours' }, bob)
    expect(described.body.webhook.ownerId).toBe(ann.userId)
    const moved = await call('PATCH', `/webhooks/${id}`, { url: `${receiver.url}/bob` }, bob)
    expect(moved.body.webhook.ownerId).toBe(bob.userId)
    expect((await call('PATCH', `/webhooks/${id}`, { format: 'slack' })).status).toBe(400)
  })

  it.each([
    [{ url: ' ', events: ['*'] }, 'Missing required field: url'],
    [{ url: 'ftp://example.com/', events: ['*'] }, 'Invalid url'],
    [{ url: 'http://user:secret@example.com/', events: ['*'] }, 'Invalid url'],
    [{ url: 'https://example.com/', events: ['task.gone'] }, 'Invalid events'],
    [{ url: 'https://example.com/', events: [] }, 'Invalid value for field: events'],
    [{ url: 'https://example.com/', events: ['*'], format: 'irc' }, 'Invalid format'],
  ])('%j is refused: %s', async (body, message) => {
    const refused = await call('POST', '/webhooks', body)
    expect([refused.status, refused.body.message]).toEqual([400, expect.stringContaining(message)])
  })
})

describe('An attempt', () => {
  it('ends in time if the receiver hangs, or answers slowly', async () => {
    const sender = createSender(readSettings({ NODE_ENV: 'test', ALLOW_PRIVATE_NETWORK: 'true' }), clock, 300)
    const send = () => sender.send(`${receiver.url}/slow`, {}, '{}', new AbortController().signal)
    receiver.answer = () => {}
    expect(await send()).toMatchObject({ status: null, error: 'No answer within 0.3 s' })
    receiver.answer = (response) => {
      response.writeHead(500)
      const timer = setInterval(() => response.write('x'), 20)
      response.on('close', () => clearInterval(timer))
    }
    expect(await send()).toMatchObject({ status: 500 })
    await sender.close()
  })
})

describe('A pass of a server', () => {
  const awake = ({ pause }: TestServer['service']['deps']) => ({ ...pause, isPaused: () => false })

  /** Starts a server that sends nothing by itself, and a deliverer that has loaded one webhook. */
  async function withDeliverer(events: string[]) {
    const api = await startServer({ ALLOW_PRIVATE_NETWORK: 'true', PAUSED: 'true' })
    const { deps } = api.service
    const post = async (path: string, body: object) => (await request(api, 'POST', `/api/v1${path}`, { body })).body
    const path = `/${++paths}`
    const { webhook } = await post('/webhooks', { url: receiver.url + path, events })
    const deliverer = createDeliverer({ ...deps, pause: awake(deps) }, bodyOf)
    await deliverer.tick()
    return {
      api,
      deps,
      post,
      path,
      deliverer,
      webhookId: webhook.id as string,
      types: () => receiver.at(path).map(({ body }) => body.type as string),
      async [Symbol.asyncDispose]() {
        await deliverer.stop()
        await api[Symbol.asyncDispose]()
      },
    }
  }

  it('reads three times and writes nothing for events that no webhook wants', async () => {
    await using passes = await withDeliverer(['agent.created'])
    for (let left = 3; left; left--) await passes.post('/tasks', { title: 'Unwanted' })
    const statements = await passes.api.statementsOf(() => passes.deliverer.tick())
    expect(statements.length).toBeLessThanOrEqual(3)
    expect(statements.filter((sql) => !/^\s*SELECT/.test(sql))).toEqual([])
    await passes.post('/agents', { name: 'Wanted', systemPrompt: 'x' })
    await passes.deliverer.tick()
    await expect.poll(passes.types).toEqual(['agent.created'])
  })

  it('leaves alone what another server sends, at most four at a time of all servers', async () => {
    await using passes = await withDeliverer(['task.created'])
    const { deps, deliverer, path } = passes
    const other = createDeliverer({ ...deps, pause: awake(deps) }, bodyOf)
    // At its first pass, a server of SQLite takes the claims of the one before over.
    await other.tick()
    const open: (() => void)[] = []
    receiver.answer = (response) => void open.push(() => response.writeHead(204).end())
    for (let left = 6; left; left--) await passes.post('/tasks', { title: 'Many' })
    await deliverer.tick()
    await other.tick()
    expect(await deps.db.webhookDelivery.count({ where: { leasedUntil: { not: null } } })).toBe(4)
    await expect.poll(() => open.length).toBe(4)
    receiver.answer = null
    for (const end of open) end()
    await expect.poll(() => receiver.at(path).length).toBe(6)
    await other.stop()
  })

  it('counts failures of other servers, also if a new delivery is its first to fail', async () => {
    await using passes = await withDeliverer(['task.created'])
    const { deps, deliverer, webhookId: id } = passes
    const { webhook, webhookDelivery } = deps.db
    const row = async () => (await webhook.findUnique({ where: { id } }))!
    receiver.answer = (response) => response.writeHead(500).end()
    await passes.post('/tasks', { title: 'Before' })
    await deliverer.tick()
    await expect.poll(async () => (await row()).failingSince).toBeTruthy()
    await deliverer.quiet()
    await webhook.update({ where: { id }, data: { failingSince: new Date(Date.now() - 6 * 24 * HOUR) } })
    await webhookDelivery.updateMany({ data: { nextAttemptAt: new Date(Date.now() + 24 * HOUR) } })
    await passes.post('/tasks', { title: 'After' })
    const time = { now: () => new Date(Date.now() + 27 * HOUR) }
    const other = createDeliverer({ ...deps, clock: time, pause: awake(deps) }, bodyOf)
    await other.tick()
    await other.quiet()
    expect(await row()).toMatchObject({ enabled: false, disabledReason: 'It has failed for 5 days' })
    await other.stop()
  })

  it('replays failed deliveries since a moment from their first attempt, and none that waits', async () => {
    await using passes = await withDeliverer(['task.created'])
    const { post, deliverer, webhookId } = passes
    const { webhookDelivery } = passes.deps.db
    for (const title of ['Old', 'Failed', 'Delivered', 'Waiting']) await post('/tasks', { title })
    await deliverer.tick()
    await expect.poll(() => webhookDelivery.count({ where: { status: 'delivered' } })).toBe(4)
    await deliverer.stop()
    const [old, failed, delivered, waiting] = await webhookDelivery.findMany({ orderBy: { sequence: 'asc' } })
    const ended = { status: 'failed' as const, step: 9 }
    const late = { status: 'pending' as const, step: 3, nextAttemptAt: new Date(Date.now() + HOUR) }
    const hourAgo = new Date(Date.now() - HOUR)
    await webhookDelivery.update({ where: { id: old!.id }, data: { ...ended, createdAt: hourAgo } })
    await webhookDelivery.update({ where: { id: failed!.id }, data: ended })
    await webhookDelivery.update({ where: { id: waiting!.id }, data: late })
    const since = new Date(Date.now() - HOUR / 2).toISOString()
    expect((await post(`/webhooks/${webhookId}/replay`, { since, status: 'pending' })).count).toBe(0)
    expect((await post(`/webhooks/${webhookId}/replay`, { since })).count).toBe(1)
    const one = await post(`/webhooks/${webhookId}/deliveries/${waiting!.id}/replay`, {})
    expect(one.delivery).toMatchObject({ status: 'pending', nextAttemptAt: late.nextAttemptAt.toISOString() })
    const other = await post('/webhooks', { url: receiver.url, events: ['task.created'] })
    const elsewhere = await post(`/webhooks/${other.id}/deliveries/${delivered!.id}/replay`, {})
    expect(elsewhere).toMatchObject({ statusCode: 404, message: 'Delivery not found' })
    const rows = await webhookDelivery.findMany({ select: { id: true, status: true, step: true } })
    expect(new Map(rows.map(({ id, status, step }) => [id, `${status} ${step}`]))).toEqual(
      new Map([
        [old!.id, 'failed 9'],
        [failed!.id, 'pending 0'],
        [delivered!.id, 'delivered 1'],
        [waiting!.id, 'pending 3'],
      ]),
    )
    await passes.deps.db.webhook.update({ where: { id: webhookId }, data: { enabled: false } })
    expect(await post(`/webhooks/${webhookId}/replay`, { since })).toMatchObject({ statusCode: 409 })
  })

  it('stores no result of an attempt that another server has repeated, or of an earlier trouble', async () => {
    await using passes = await withDeliverer(['task.created'])
    const { db } = passes.deps
    const webhook = { where: { id: passes.webhookId } }
    const open: ((status: number) => void)[] = []
    receiver.answer = (response) => void open.push((status) => response.writeHead(status).end())
    const failingSince = [new Date(Date.now() - 2 * HOUR), new Date(Date.now() - HOUR)]
    await db.webhook.update({ ...webhook, data: { failingSince: failingSince[0]! } })
    for (const title of ['Repeated', 'Other']) await passes.post('/tasks', { title })
    await passes.deliverer.tick()
    await expect.poll(() => open.length).toBe(2)
    const [repeated, other] = await db.webhookDelivery.findMany({ orderBy: { createdAt: 'asc' } })
    await db.webhookDelivery.update({ where: { id: repeated!.id }, data: { claims: { increment: 1 } } })
    await db.webhook.update({ ...webhook, data: { failingSince: failingSince[1]! } })
    for (const answer of open) answer(204)
    await passes.deliverer.quiet()
    expect(await db.webhookDelivery.findUnique({ where: { id: repeated!.id } })).toMatchObject({
      status: 'pending',
      attempts: [],
    })
    expect(await db.webhookDelivery.findUnique({ where: { id: other!.id } })).toMatchObject({ status: 'delivered' })
    expect((await db.webhook.findUnique(webhook))?.failingSince).toEqual(failingSince[1])
  })

  it('queues more events than it reads at once', async () => {
    await using passes = await withDeliverer(['task.created'])
    const { db } = passes.deps
    const { organizationId } = await db.webhook.findFirstOrThrow()
    const event = { organizationId, type: 'task.created', subjectId: 'deleted', at: new Date(), data: {} }
    await db.$transaction(async (tx) => {
      for (let left = 250; left; left--) await announce(tx, event)
    })
    await passes.deliverer.tick()
    expect(await db.webhookDelivery.count()).toBe(250)
  })

  it('removes deliveries of more than 30 days, and push notifications an hour after their run', async () => {
    await using passes = await withDeliverer(['task.created'])
    const { db } = passes.deps
    await passes.post('/tasks', { title: 'Old' })
    await passes.deliverer.tick()
    await expect.poll(() => db.webhookDelivery.count({ where: { status: 'delivered' } })).toBe(1)
    const { events, ...row } = await db.webhook.findFirstOrThrow()
    const delivery = (await db.webhookDelivery.findFirstOrThrow()) as object
    const runEndedAt = new Date()
    const push = { ...row, events: events as string[], enabled: false, executionId: 'run' }
    await db.webhook.createMany({
      data: [
        { ...push, id: 'running' },
        { ...push, id: 'ended', runEndedAt },
        { ...push, id: 'pending', runEndedAt },
      ],
    })
    await db.webhookDelivery.createMany({
      data: [{ ...delivery, id: 'pending', webhookId: 'pending', status: 'pending' } as never],
    })
    /** Returns the rows that are left after some time. */
    const leftAfter = async (time: number) => {
      const later = { now: () => new Date(Date.now() + time) }
      const deliverer = createDeliverer({ ...passes.deps, pause: awake(passes.deps), clock: later }, bodyOf)
      await deliverer.forget()
      await deliverer.stop()
      const left = await db.webhook.findMany({ where: { executionId: 'run' }, orderBy: { id: 'asc' } })
      return [await db.webhookDelivery.count(), ...left.map(({ id }) => id)]
    }
    expect(await leftAfter(0)).toEqual([2, 'ended', 'pending', 'running'])
    expect(await leftAfter(2 * HOUR)).toEqual([2, 'pending', 'running'])
    expect(await leftAfter(31 * 24 * HOUR)).toEqual([0])
    expect(await db.webhook.count()).toBe(1)
  })

  it('hands a webhook no event from before it was made, though another one wants it', async () => {
    await using passes = await withDeliverer(['task.created'])
    const { db } = passes.deps
    const { organizationId, id } = await db.webhook.findFirstOrThrow()
    const event = { organizationId, type: 'task.created', subjectId: 'deleted', at: new Date(), data: {} }
    const happen = () => db.$transaction((tx) => announce(tx, event))
    await happen()
    const { webhook } = await passes.post('/webhooks', { url: `${receiver.url}/${++paths}`, events: ['task.created'] })
    await happen()
    const countOf = async (webhookId: string) => {
      await passes.deliverer.tick()
      return db.webhookDelivery.count({ where: { webhookId } })
    }
    await expect.poll(() => countOf(webhook.id)).toBe(1)
    expect(await countOf(id)).toBe(2)
  })

  it('skips no event after another server has changed what a webhook wants', async () => {
    await using passes = await withDeliverer(['agent.created'])
    const { deps, post, deliverer, webhookId } = passes
    const change = (events: string[]) =>
      deps.db.webhook.update({ where: { id: webhookId }, data: { events, updatedAt: clock.now() } })
    // The notice of the change is late. Until then an event is passed over in memory alone.
    await change(['agent.created', 'task.created'])
    await post('/tasks', { title: 'Wanted' })
    await deliverer.tick()
    expect(passes.types()).toEqual([])
    deps.bus.publish('webhook', ['any'])
    await expect.poll(passes.types).toEqual(['task.created'])
    // An event that was wanted before, too, finds the change without a notice.
    await change(['agent.created', 'task.*'])
    await post('/tasks', { title: 'Assigned', assignedTo: 'me' })
    await post('/agents', { name: 'Both', systemPrompt: 'x' })
    await deliverer.tick()
    await expect.poll(() => passes.types().slice(1).sort()).toEqual(['agent.created', 'task.assigned', 'task.created'])
  })
})

describe('Nothing is sent', () => {
  it('Nothing is sent by a paused server', async () => {
    await using paused = await startServer({ ALLOW_PRIVATE_NETWORK: 'true', PAUSED: 'true' })
    const post = (path: string, body: object) => request(paused, 'POST', `/api/v1${path}`, { body })
    const { id } = (await post('/webhooks', { url: `${receiver.url}/paused`, events: ['*'] })).body.webhook
    await post('/tasks', { title: 'T' })
    await post(`/webhooks/${id}/test`, {})
    const deliverer = createDeliverer(paused.service.deps, bodyOf)
    await deliverer.tick()
    await deliverer.stop()
    expect(receiver.at('/paused')).toEqual([])
  })

  it.each(FORBIDDEN_HOSTS)('Nothing is sent to the private host %s', async (host) => {
    const sender = createSender(readSettings({ NODE_ENV: 'test' }), clock)
    const before = receiver.received.length
    const { port } = new URL(receiver.url)
    const sent = await sender.send(`http://${host}:${port}/`, {}, '{}', new AbortController().signal)
    expect(sent).toMatchObject({ status: null, error: expect.any(String) })
    expect(receiver.received).toHaveLength(before)
    await sender.close()
  })
})

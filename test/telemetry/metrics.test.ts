import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { request as send } from 'node:http'
import { describe, expect, it } from 'vitest'
import { createAgent } from '../support/api.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const model = await use(startModelServer())
const env = { METRICS_PORT: '0', ...model.env }
const server = await use(startServer(env))
const agentId = await createAgent(server)

const scrape = async (): Promise<string> => (await fetch(server.service.metricsUrl ?? '')).text()

/** Returns the value of a metric with these labels in their order, or null without one. */
async function metric(name: string): Promise<number | null> {
  const line = (await scrape()).split('\n').find((line) => line.startsWith(`${name} `))
  return line ? Number(line.slice(name.length)) : null
}

const execute = (body: object) => request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body })

describe('the metrics', () => {
  it('are those that the guide about monitoring lists', async () => {
    const page = readFileSync(new URL('../../docs/guides/monitoring.md', import.meta.url), 'utf8')
    const documented = [...page.matchAll(/^\| `(muster_\w+)` \|/gm)].map(([, name]) => name)
    const served = [...(await scrape()).matchAll(/^# TYPE (muster_\w+)/gm)].map(([, name]) => name)
    expect(documented.toSorted()).toEqual(served.toSorted())
  })

  it('are served on their own port only', async () => {
    expect((await request(server, 'GET', '/metrics')).status).toBe(404)
    const elsewhere = new URL('/', server.service.metricsUrl ?? '')
    expect((await fetch(elsewhere)).status).toBe(404)
    expect((await fetch(server.service.metricsUrl ?? '', { method: 'POST' })).status).toBe(404)
    await using plain = await startServer()
    expect(plain.service.metricsUrl).toBe(null)
  })

  it('count requests by route, method and status, never by a value from a caller', async () => {
    const count = (labels: string) => metric(`muster_http_request_duration_seconds_count{${labels}}`)
    const route = 'route="/api/v1/agents/{id}"'
    await request(server, 'GET', `/api/v1/agents/${agentId}`)
    await request(server, 'GET', '/api/v1/agents/canary-unknown')
    await request(server, 'GET', '/canary/path')
    await request(server, 'GET', '/trpc/canary.path')
    await request(server, 'GET', '/trpc/models.list')
    await request(server, 'GET', `/trpc/models.list,models.list?batch=1`)
    const odd = send(`${server.url}/readyz`, { method: 'PROPFIND' }).end()
    await once(odd, 'response').then(([response]) => response.resume())
    await expect.poll(() => count(`method="GET",${route},status="200"`)).toBe(1)
    expect(await count(`method="GET",${route},status="404"`)).toBe(1)
    expect(await count('method="GET",route="other",status="404"')).toBeGreaterThanOrEqual(2)
    expect(await count('method="GET",route="/trpc/models.list",status="200"')).toBe(1)
    expect(await count('method="GET",route="/trpc (batch)",status="200"')).toBe(1)
    await expect.poll(() => count('method="other",route="/readyz",status="405"')).toBe(1)
    const text = await scrape()
    for (const word of ['canary', agentId, server.token, 'default']) expect(text).not.toContain(word)
  })

  it('count runs by state, open streams, outcomes and tokens, with the oldest waiting run', async () => {
    const tokens = async () => (await metric('muster_tokens_total{provider="compatible",direction="output"}')) ?? 0
    const completed = async () => (await metric('muster_runs_ended_total{status="completed"}')) ?? 0
    const [before, ended] = [await tokens(), await completed()]
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['One', gate.promise, ' two'] })
    const { body: run } = await execute({ message: 'Hi', background: true })
    const { body: next } = await execute({ message: 'And?', sessionId: run.sessionId, background: true })
    const headers = { Authorization: `Bearer ${server.token}` }
    const stream = await fetch(`${server.url}/api/v1/executions/${run.executionId}/events`, { headers })
    expect(await metric('muster_runs{state="running"}')).toBe(1)
    expect(await metric('muster_runs{state="pending"}')).toBe(1)
    expect(await metric('muster_runs{state="waiting"}')).toBe(0)
    expect(await metric('muster_oldest_pending_seconds')).toBeGreaterThan(0)
    // A run that began and was approved since has not waited in the queue all the time.
    const setAttempt = (attempt: number) =>
      server.service.deps.db.execution.update({ where: { id: next.executionId }, data: { attempt } })
    await setAttempt(1)
    expect(await metric('muster_oldest_pending_seconds')).toBe(0)
    await setAttempt(0)
    expect(await metric('muster_http_streams_open')).toBe(1)
    gate.resolve()
    await stream.text()
    const done = `/api/v1/executions/${next.executionId}/events`
    await (await fetch(`${server.url}${done}`, { headers })).text()
    await expect.poll(() => metric('muster_http_streams_open')).toBe(0)
    expect(await metric('muster_http_streams_total{route="/api/v1/executions/{id}/events"}')).toBe(2)
    expect(await metric('muster_runs{state="running"}')).toBe(0)
    expect(await metric('muster_oldest_pending_seconds')).toBe(0)
    expect(await completed()).toBe(ended + 2)
    expect(await tokens()).toBeGreaterThan(before)
    expect(await metric('nodejs_eventloop_lag_p99_seconds')).not.toBe(null)
  })

  it('count the runs that were taken over', async () => {
    expect(await metric('muster_lease_expiries_total')).toBe(0)
    const never = Promise.withResolvers<void>()
    model.script({ tokens: [never.promise, 'never'] })
    const { body: run } = await execute({ message: 'Hi', background: true })
    const { db, clock } = server.service.deps
    const long = new Date(clock.now().getTime() - 60_000)
    const data = { leaseOwner: 'somebody who died', leaseUntil: long, attempt: { increment: 1 } }
    await db.execution.update({ where: { id: run.executionId }, data })
    await expect.poll(() => metric('muster_lease_expiries_total')).toBe(1)
    never.resolve()
  })
})

import { expect, test } from 'vitest'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const server = await use(startServer({ CORS_ORIGINS: 'https://app.example' }))

const preflight = (origin: string, headers?: string) =>
  fetch(`${server.url}/api/v1/agents`, {
    method: 'OPTIONS',
    headers: {
      Origin: origin,
      'Access-Control-Request-Method': 'POST',
      ...(headers !== undefined && { 'Access-Control-Request-Headers': headers }),
    },
  })

test.each([
  ['authorization, x-stainless-os, traceparent', 'authorization, x-stainless-os, traceparent'],
  [undefined, expect.stringContaining('Authorization')],
  ['<script>', expect.stringContaining('Authorization')],
])('a preflight of an allowed origin for the headers %s is allowed', async (wanted, allowed) => {
  const answer = await preflight('https://app.example', wanted)
  expect(answer.status).toBe(204)
  expect(answer.headers.get('access-control-allow-origin')).toBe('https://app.example')
  expect(answer.headers.get('access-control-allow-headers')).toEqual(allowed)
  expect(answer.headers.get('vary')).toContain('Access-Control-Request-Headers')
})

test('an answer says to caches that it depends on the origin, also without one', async () => {
  const answer = await fetch(`${server.url}/api/version`)
  expect(answer.headers.get('vary')).toContain('Origin')
})

// OpenAI's library in a page would run a failed agent again.
test.each(['Retry-After', 'X-Should-Retry'])('pages can read %s, by which clients repeat requests', async (name) => {
  const answer = await fetch(`${server.url}/api/version`, { headers: { Origin: 'https://app.example' } })
  expect(answer.headers.get('access-control-expose-headers')?.split(', ')).toContain(name)
})

test('a request that only looks like a preflight gets its answer', async () => {
  const headers = { Origin: 'https://app.example', 'Access-Control-Request-Method': 'GET' }
  const answer = await fetch(`${server.url}/api/version`, { headers })
  expect([answer.status, answer.headers.get('access-control-allow-origin')]).toEqual([200, 'https://app.example'])
})

test('the origin * allows the pages of all origins', async () => {
  await using open = await startServer({ CORS_ORIGINS: '*' })
  const answer = await fetch(`${open.url}/api/version`, { headers: { Origin: 'https://any.example' } })
  expect(answer.headers.get('access-control-allow-origin')).toBe('https://any.example')
})

test('a refused preflight names the setting that allows it, once a minute in the log, too', async () => {
  await fetch(`${server.url}/api/version`, { headers: { Origin: 'https://silent.example' } })
  for (const origin of ['https://evil.example', 'https://evil.example', 'https://other.example']) {
    const answer = await preflight(origin, 'authorization')
    expect([answer.status, answer.headers.get('access-control-allow-origin')]).toEqual([403, null])
    expect((await answer.json()).detail).toContain('CORS_ORIGINS')
  }
  const lines = server.logs.map((line) => JSON.parse(line)).filter(({ msg }) => /preflight/.test(msg))
  expect(lines).toMatchObject([
    { level: 40, origin: 'https://evil.example', path: '/api/v1/agents', msg: expect.stringContaining('CORS_ORIGINS') },
    { origin: 'https://other.example' },
  ])
})

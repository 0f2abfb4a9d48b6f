import { describe, expect, it } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const server = await use(startServer({ RATE_LIMIT: '600/60' }))

const get = (path: string) => request(server, 'GET', path, { token: null })

describe('a program without a token', () => {
  it('gets the version', async () => {
    const { version } = packageJson
    expect(await get('/api/version')).toMatchObject({ status: 200, body: { success: true, name: 'muster', version } })
  })

  it('gets the protocols and limits', async () => {
    const { status, body } = await get('/.well-known/muster.json')
    expect(status).toBe(200)
    expect(body).toMatchObject({
      name: 'muster',
      // The port that the system chose for PORT=0.
      protocols: {
        mcp: { url: `http://localhost:${new URL(server.url).port}/mcp` },
        a2a: { versions: ['1.0', '0.3'] },
        openai: {},
      },
      limits: { bodyBytes: 1_048_576, rows: 1000, rate: { limit: 600, window: 60 }, runs: null },
    })
  })

  it('gets a text for language models whose links work', async () => {
    const { status, headers, body } = await get('/llms.txt')
    expect(status).toBe(200)
    expect(headers.get('content-type')).toBe('text/markdown; charset=utf-8')
    expect(body).toMatch(/^# Muster\n\n> /)
    for (const path of ['/api/openapi.json', '/api/docs', '/.well-known/muster.json']) {
      expect(body).toContain(path)
      expect((await get(path)).status).toBe(200)
    }
  })
})

it.each([
  '/healthz',
  '/',
  '/app',
  '/api/docs',
  '/llms.txt',
  '/api/v1/agents',
  '/trpc/agents.list',
  '/graphql',
  '/mcp',
  '/none',
])('a browser takes the answer of %s for no other type than the stated one', async (path) => {
  expect((await get(path)).headers.get('x-content-type-options')).toBe('nosniff')
})

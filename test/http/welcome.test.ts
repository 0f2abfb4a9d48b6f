import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { sendWelcome } from '../../src/http/welcome.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/** The page for a browser on paths without an API (contract-2.md section 1.21). */

const server = await use(startServer({ TOKEN_PREFIX: 'td' }))
/** The same answers with and without a built console. */
const withConsole = await use(welcomes(true))
const withoutConsole = await use(welcomes(false))

async function welcomes(hasConsole: boolean): Promise<Server> {
  const { settings } = server.service.deps
  const made = createServer((req, res) => void sendWelcome(settings, req.url ?? '', req, res, hasConsole))
  await once(made.listen(0, '127.0.0.1'), 'listening')
  return made
}

const urlOf = (one: Server) => `http://127.0.0.1:${(one.address() as AddressInfo).port}`

const BROWSER = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'
const open = (path: string, accept = BROWSER, method = 'GET') =>
  fetch(server.url + path, { method, headers: { Accept: accept } })

test('a browser is redirected from / and from the address of a chat to the console', async () => {
  const lead = async (path: string) => {
    const response = await fetch(urlOf(withConsole) + path, { headers: { Accept: BROWSER }, redirect: 'manual' })
    return [response.status, response.headers.get('location')]
  }
  expect(await lead('/')).toEqual([302, '/app'])
  expect(await lead('/acme/spaces/a/chats/b')).toEqual([302, '/app/chats/b?organization=acme'])
})

test('without the console a browser gets a page with working links', async () => {
  const { chatUrl } = (await request(server, 'POST', '/api/v1/agents', { body: { name: 'Ada', systemPrompt: 'x' } }))
    .body
  for (const path of ['/', chatUrl]) {
    const response = await fetch(urlOf(withoutConsole) + path, { headers: { Accept: BROWSER } })
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
    const html = await response.text()
    expect(html).toContain('Bearer td_')
    expect(html).toContain('npm run admin -- token create')
    for (const [, href = ''] of html.matchAll(/ href="(\/[^"]*)"/g)) expect((await open(href)).status).toBe(200)
    expect((await open(path, BROWSER, 'HEAD')).status).toBe(200)
  }
  const chatId = chatUrl.split('/').at(-1)
  expect(await (await fetch(urlOf(withoutConsole) + chatUrl, { headers: { Accept: BROWSER } })).text()).toContain(
    `/api/v1/chats/${chatId}/messages`,
  )
})

test('the policy of that page forbids the browser to load or run anything', async () => {
  const response = await fetch(urlOf(withoutConsole), { headers: { Accept: BROWSER } })
  const policy = response.headers.get('content-security-policy') ?? ''
  expect(policy).toMatch(/^default-src 'none'; style-src 'sha256-[\w+/=]+'; /)
  expect(policy).not.toMatch(/unsafe|script-src/)
  const html = await response.text()
  expect(html).not.toMatch(/<script|style="|https?:\/\/(?!127\.0\.0\.1)/)
})

test('other clients, and browsers on other paths, get the JSON of an unknown path', async () => {
  for (const [path, accept] of [
    ['/', '*/*'],
    ['/', 'application/json'],
    ['/default/spaces/a/chats/b', 'application/json'],
    ['/nowhere', BROWSER],
    ['/default/spaces/a', BROWSER],
    ['/api/nowhere', BROWSER],
  ] as const) {
    const response = await open(path, accept)
    expect([path, response.status]).toEqual([path, 404])
    expect(await response.json()).toMatchObject({ error: true, message: 'Not found' })
  }
})

import { createServer, request as forward } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { expectEachOnce, hasBrowser, lastAnswer, launch, ownerOf, sendMessage, visit } from '../support/browser.ts'
import { freePort } from '../support/free-port.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { startOAuthMcp } from '../support/oauth-mcp.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

const PREFIX = '/team/muster'

/** A plain proxy that removes a path prefix and forwards the rest. */
async function startPrefixProxy(target: string) {
  const server = createServer((incoming, response) => {
    const { method, headers, url = '' } = incoming
    if (!url.startsWith(`${PREFIX}/`)) return void response.writeHead(404).end()
    const outgoing = forward(target + url.slice(PREFIX.length), { method: method ?? 'GET', headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(response)
    })
    outgoing.on('error', () => response.destroy())
    response.on('close', () => outgoing.destroy())
    incoming.pipe(outgoing)
  }).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Connects to an MCP server with OAuth, and disconnects, on its page and for a run that waits. */
async function connect(server: TestServer, model: ModelServer, page: Page): Promise<void> {
  await using oauth = await startOAuthMcp()
  const body = { name: 'Guarded', url: oauth.url, auth: 'oauth' }
  const { id } = (await request(server, 'POST', '/api/v1/mcps', { body })).body
  await page.goto(`${PREFIX}/app/mcps?mcp=${id}`)
  await page.getByText('Not connected').waitFor()
  await page.getByRole('button', { name: 'Test the connection' }).click()
  await page.getByRole('alert').getByText('Connect first').waitFor()
  oauth.answer = { error: 'access_denied' }
  await page.getByRole('button', { name: 'Connect', exact: true }).click()
  await page.getByText('The access was denied there.').waitFor()
  oauth.answer = {}
  await page.getByRole('button', { name: 'Connect', exact: true }).click()
  await page.getByText('as ada@example.org').waitFor()
  await page.getByRole('button', { name: 'Test the connection' }).click()
  await page.getByText('The tool echo').waitFor()
  for (const token of [...oauth.access.values(), ...oauth.refresh.values()]) token.isRevoked = true
  await page.getByRole('button', { name: 'Test the connection' }).click()
  await page.getByRole('alert').getByText('Connect first').waitFor()
  await page.getByText('Expired', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'Disconnect' }).click()
  await page.getByText('Not connected').waitFor()
  expect(oauth.revoked.length).toBe(1)

  const agent = { name: 'Caller', systemPrompt: 'x', mcpInstanceIds: [id] }
  const agentId = (await request(server, 'POST', '/api/v1/agents', { body: agent })).body.id
  model.script({ toolCalls: [{ id: 'call', name: 'connect_to_Guarded', input: {} }] }, { tokens: 'Connected.' })
  await page.goto(`${PREFIX}/app?agent=${agentId}`)
  await sendMessage(page, 'Look')
  await page.getByRole('log').getByText('This run waits until you connect').waitFor()
  const chat = page.url()
  await page.getByRole('button', { name: 'Connect', exact: true }).click()
  await expect.poll(() => lastAnswer(page)).toContain('Connected.')
  expect(page.url()).toBe(chat)
}

describe.skipIf(!hasBrowser)('the console under a path of another host', () => {
  it('chats, follows links, survives a reload, and connects to MCP servers', async () => {
    await using model = await startModelServer()
    const port = await freePort()
    await using proxy = await startPrefixProxy(`http://127.0.0.1:${port}`)
    await using server = await startServer({
      PORT: String(port),
      PUBLIC_URL: proxy.origin + PREFIX,
      OPENAI_BASE_URL: model.baseUrl,
      ALLOW_PRIVATE_NETWORK: 'true',
      DEFAULT_MODEL: 'compatible/test',
    })
    const browser = await launch()
    try {
      const { cookie } = await ownerOf(server)
      const { page, complaints } = await visit(browser, { url: proxy.origin, cookie }, `${PREFIX}/app`)
      model.script({ tokens: ['w0 ', 'w1 ', 'w2'] })
      await sendMessage(page, 'Count')
      await page.waitForURL(`**${PREFIX}/app/chats/*`)
      await expect.poll(() => lastAnswer(page)).toContain('w2')
      await page.reload()
      await expect.poll(() => lastAnswer(page)).toContain('w2')
      await expectEachOnce(page, 3)
      await page.getByRole('link', { name: 'Runs' }).click()
      // The page before has a link with the same name, to the chat.
      await page.getByRole('table').getByRole('link', { name: 'Count' }).click()
      await page.getByRole('list', { name: /^Lane of/ }).waitFor()
      expect(new URL(page.url()).pathname).toMatch(`${PREFIX}/app/runs/`)
      expect(complaints).toEqual([])
      await connect(server, model, page)
    } finally {
      await browser.close()
    }
  })
})

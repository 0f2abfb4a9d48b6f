import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { Browser, Page } from 'playwright-core'
import { build, type Rollup } from 'vite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newToken } from '../../src/lib/token.ts'
import { hasBrowser, launch, openContext } from '../support/browser.ts'
import { createFolder } from '../support/folder.ts'
import { startForwarder } from '../support/forwarder.ts'
import { freePort } from '../support/free-port.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { spawnServer } from '../support/process.ts'
import { request } from '../support/rest.ts'

const words = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => `w${from + index} `)

/** Bundles the page with its packages. */
async function bundle(): Promise<string> {
  const entry = fileURLToPath(new URL('../support/use-chat-page.ts', import.meta.url))
  const made = (await build({
    configFile: false,
    logLevel: 'silent',
    define: { 'process.env.NODE_ENV': '"production"' },
    build: { write: false, lib: { entry, formats: ['iife'], name: 'page' } },
  })) as Rollup.RollupOutput[]
  return made[0]!.output[0].code
}

async function servePage(): Promise<Server> {
  const code = await bundle()
  const server = createServer((req, res) => {
    const isCode = req.url === '/page.js'
    res.setHeader('content-type', isCode ? 'text/javascript' : 'text/html')
    res.end(isCode ? code : '<!doctype html><body><script src="/page.js"></script>')
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return server
}

const addressOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`

describe.skipIf(!hasBrowser)('a page with useChat', () => {
  let browser: Browser
  let model: ModelServer
  let pages: Server
  beforeAll(async () => {
    browser = await launch()
    model = await startModelServer()
    pages = await servePage()
  })
  afterAll(async () => {
    await browser?.close()
    await model?.close()
    pages?.close()
  })

  const answer = (page: Page) => page.locator('p[data-role=assistant]')

  it('shows the same answer over a reload, a cut connection and kill -9 in its middle', async () => {
    await using folder = await createFolder()
    const token = newToken('mst')
    const env = {
      PORT: String(await freePort()),
      BOOTSTRAP_TOKEN: token,
      CORS_ORIGINS: addressOf(pages),
      ...model.env,
    }
    await using first = await spawnServer(folder.path, env)
    await using forwarder = await startForwarder(first.url)
    const body = { name: 'Ada', systemPrompt: 'You are Ada.' }
    const { id } = (await request({ url: first.url, token }, 'POST', '/api/v1/agents', { body })).body
    const [cut, end, last] = [0, 1, 2].map(() => Promise.withResolvers<void>())
    const call = { id: 'a', name: 'unknown', input: {} }
    model.script(
      { tokens: [...words(0, 20), cut!.promise, ...words(20, 40), end!.promise], toolCalls: [call] },
      { tokens: words(40, 60), end: 'hang' },
      { tokens: ['The ', last!.promise, 'end.'] },
    )
    const page = await (await openContext(browser)).newPage()
    const query = new URLSearchParams({ api: new URL(`/api/v1/agents/${id}/chat`, forwarder.url).href, token })
    await page.goto(`${addressOf(pages)}/?${query}`)
    await page.getByRole('button', { name: 'Send' }).click()
    await expect.poll(() => answer(page).textContent()).toBe(words(0, 20).join(''))
    await page.reload()
    await expect.poll(() => answer(page).textContent()).toBe(words(0, 20).join(''))
    forwarder.cut()
    await expect.poll(() => page.locator('output').textContent()).toBe('error')
    cut!.resolve()
    forwarder.mend()
    await expect.poll(() => answer(page).textContent()).toBe(words(0, 40).join(''))
    end!.resolve()
    await expect.poll(() => answer(page).textContent()).toBe(`${words(0, 40).join('')}|${words(40, 60).join('')}`)
    await first.stop('SIGKILL')
    await using _second = await spawnServer(folder.path, env)
    await expect.poll(() => answer(page).textContent()).toBe(`${words(0, 40).join('')}|The `)
    last!.resolve()
    await expect.poll(() => answer(page).textContent()).toBe(`${words(0, 40).join('')}|The end.`)
    await expect.poll(() => page.locator('output').textContent()).toBe('ready')
    await page.reload()
    await expect.poll(() => answer(page).textContent()).toBe(`${words(0, 40).join('')}|The end.`)
    await page.close()
  })
})

import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMcp } from '../engine/tool-lab.ts'
import { type Door, hasBrowser, lastAnswer, launch, leave, ownerOf, sendMessage, visit } from '../support/browser.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

/** HTML, scripts, javascript: URLs, styles, frames, a foreign image, and characters that reverse the text. */
const HOSTILE = [
  '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><svg onload="window.hacked = 3">',
  '<a href="javascript:window.hacked = 4">x</a> [y](javascript:window.hacked=5) [z](data:text/html,x)',
  '[ftp](ftp://evil.example/x) [tel](tel:123) [own](/api/auth/logout) [mail](mailto:eve@evil.example)',
  '![picture](https://evil.example/pixel.png) ![<s>alt</s>](https://evil.example/alt.png) <math><mtext><style><img src=x onerror="window.hacked=6"></style>',
  'one<br>two<br/>three',
  '<style>body{display:none}</style><iframe src="https://evil.example"></iframe>',
  '\u202etxet desrever\u202c and {{constructor.constructor("window.hacked=7")()}}',
].join('\n\n')
/** Its last word, which proves that it was rendered. */
const END = 'constructor.constructor'

/** Expects that none of it ran or was loaded, and that the page is still there. */
async function expectHarmless(page: Page, within: string): Promise<void> {
  expect(await page.locator(within).locator('script, iframe, style, svg[onload], img:not([alt=""])').count()).toBe(0)
  expect(await page.evaluate(() => (window as { hacked?: number }).hacked)).toBeUndefined()
  expect(await page.evaluate(() => getComputedStyle(document.body).display)).not.toBe('none')
}

describe.skipIf(!hasBrowser)('hostile content in the console', () => {
  let browser: Browser
  let model: ModelServer
  let server: TestServer
  let owner: Door
  beforeAll(async () => {
    browser = await launch()
    model = await startModelServer()
    server = await startServer({
      ...model.env,
      ALLOW_PRIVATE_NETWORK: 'true',
    })
    owner = await ownerOf(server)
  })
  afterAll(async () => {
    await browser?.close()
    await server?.[Symbol.asyncDispose]()
    await model?.close()
  })
  const create = async (path: string, body: object) =>
    (await request(server, 'POST', `/api/v1/${path}`, { body })).body.id

  it('is shown as text if a person, a model or the name of an agent has it', async () => {
    const { page, complaints } = await visit(browser, owner)
    const name = '<img src=x onerror="window.hacked = 5">\u202e'
    const id = await create('agents', { name, systemPrompt: 'x', initialGreeting: HOSTILE, description: HOSTILE })
    await page.goto('/app/agents')
    await page.getByText('<img src=x onerror').first().waitFor()
    await expectHarmless(page, '#main')
    await page.goto(`/app?agent=${id}`)
    await page.getByText(END).first().waitFor()
    model.script({ tokens: [HOSTILE] })
    await sendMessage(page, HOSTILE)
    await expect.poll(() => lastAnswer(page)).toContain(END)
    await expectHarmless(page, '#main')
    const links = page.locator('[data-turn=assistant] .prose a')
    const hrefs = await links.evaluateAll((all) => all.map((link) => link.getAttribute('href')))
    const pictures = ['https://evil.example/pixel.png', 'https://evil.example/alt.png']
    expect(await page.locator('[data-turn=assistant] .prose br').count()).toBe(2)
    expect(hrefs.filter(Boolean)).toEqual(['mailto:eve@evil.example', ...pictures])
    for (const link of await links.all()) {
      expect(await link.getAttribute('rel')).toBe('noopener noreferrer nofollow')
      expect(await link.getAttribute('target')).toBe('_blank')
    }
    const shown = (await page.locator('[data-turn=assistant] .prose').allInnerTexts()).join()
    for (const source of ['<script>window.hacked = 1</script>', '<s>alt</s>', '<style>body{display:none}</style>']) {
      expect(shown).toContain(source)
    }
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('is shown as text in the input and the result of a tool', async () => {
    const { page, complaints } = await visit(browser, owner)
    await using mcp = await startMcpServer()
    const mcpId = await createMcp(server, mcp.url)
    const id = await create('agents', { name: 'Caller', systemPrompt: 'x', mcpInstanceIds: [mcpId] })
    model.script({ toolCalls: [{ id: 'call', name: 'echo', input: { text: HOSTILE } }] }, { tokens: 'Called.' })
    await page.goto(`/app?agent=${id}`)
    await page.getByRole('button', { name: 'Talk to Caller' }).waitFor()
    await sendMessage(page, 'Call it')
    await expect.poll(() => lastAnswer(page)).toContain('Called.')
    await page.getByText('echo', { exact: true }).click()
    await expect.poll(() => page.locator('[data-turn=assistant] pre').last().textContent()).toContain(END)
    await expectHarmless(page, '#main')
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('is sanitised in Markdown files, and is source text in others', async () => {
    const { page, complaints } = await visit(browser, owner)
    const id = await create('spaces', { name: HOSTILE.slice(0, 150) })
    for (const path of ['evil.md', 'evil.html', 'evil.svg']) {
      const body = { path, content: HOSTILE }
      expect((await request(server, 'PUT', `/api/v1/spaces/${id}/files/content`, { body })).status).toBe(200)
      await page.goto(`/app/spaces/${id}?file=${path}`)
      await expect
        .poll(() =>
          page.locator('#main').evaluate((main) => {
            const fields = [...main.querySelectorAll('textarea')].map(({ value }) => value)
            return [main.textContent, ...fields].join()
          }),
        )
        .toContain(END)
      await expectHarmless(page, '#main')
    }
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('may be a megabyte of Markdown, and the page continues', async () => {
    const { page, complaints } = await visit(browser, owner)
    model.script({ tokens: ['*a*'.repeat(350_000)] }, { tokens: 'Still here.' })
    await sendMessage(page, 'Much')
    await expect.poll(() => page.locator('[data-turn=assistant] pre').count()).toBeGreaterThan(0)
    await sendMessage(page, 'And now?')
    await expect.poll(() => lastAnswer(page)).toContain('Still here.')
    expect(complaints).toEqual([])
    await leave(page)
  })
})

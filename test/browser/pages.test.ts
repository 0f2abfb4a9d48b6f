import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import axe from 'axe-core'
import type { Browser, Page, Request } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMcp } from '../engine/tool-lab.ts'
import { composer, type Door, hasBrowser, holdBack, launch, leave, ownerOf, visit } from '../support/browser.ts'
import { signedIn } from '../support/browser-session.ts'
import { createFolder } from '../support/folder.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

type Finding = { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }

/**
 * Returns a function that lists the serious and critical findings on a page, of all rules or of some. The policy does
 * not apply to the script.
 */
async function examiner(page: Page): Promise<(rules?: string[]) => Promise<string[]>> {
  const session = await page.context().newCDPSession(page)
  await session.send('Runtime.evaluate', { expression: axe.source })
  return async (rules) => {
    const options = JSON.stringify({ resultTypes: ['violations'], ...(rules && { runOnly: rules }) })
    const { result } = await session.send('Runtime.evaluate', {
      expression: `axe.run(${options}).then(({ violations }) => JSON.stringify(violations))`,
      awaitPromise: true,
    })
    const violations: Finding[] = JSON.parse(result.value)
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`))
  }
}

/** Returns by how many pixels the page, or a part of it, is wider than its place. */
const overflow = (page: Page): Promise<number> =>
  page.evaluate(() =>
    Math.max(
      ...[document.documentElement, ...document.querySelectorAll('#main > div, #main > div > section')].map(
        ({ scrollWidth, clientWidth }) => scrollWidth - clientWidth,
      ),
    ),
  )

/** The width at which a page has the navigation beside it, and the least space (pixels). */
const TABLET = 768
const KB = 1024

/** A picture of one pixel. */
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const PAGES = [
  '/app',
  '/app/chats',
  '/app/agents',
  '/app/agents/new',
  '/app/runs',
  '/app/approvals',
  '/app/tasks',
  '/app/missions',
  '/app/spaces',
  '/app/skills',
  '/app/mcps',
  '/app/usage',
  ...[
    ...['profile', 'keys', 'limits', 'organization', 'members', 'service-accounts', 'providers', 'secrets'],
    ...['webhooks', 'policy', 'audit'],
  ].map((name) => `/app/settings/${name}`),
]

describe.skipIf(!hasBrowser)('the pages of the console', () => {
  let browser: Browser
  let server: TestServer
  let owner: Door
  let paths: string[]
  let folder: Awaited<ReturnType<typeof createFolder>>
  beforeAll(async () => {
    browser = await launch()
    folder = await createFolder()
    const config = join(folder.path, 'mcp.json')
    await writeFile(config, JSON.stringify({ mcpServers: { declared: { url: 'https://mcp.example.com/mcp' } } }))
    server = await startServer({ MCP_CONFIG: config, ALLOW_PRIVATE_NETWORK: 'true' })
    owner = await ownerOf(server)
    const agent = { name: 'Ada', systemPrompt: 'You help.', description: 'Helps.', tags: ['one'] }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body: agent })).body
    const run = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hello' } })).body
    const longName = `Secretary ${'of the organization '.repeat(9)}`
    const hidden = { name: longName, systemPrompt: 'x', description: longName, visibility: 'private' }
    await request(server, 'POST', '/api/v1/agents', { body: hidden })
    const mission = { title: 'Daily', goal: 'Sum up', agentId: id, schedule: { type: 'cron', value: '0 8 * * *' } }
    const missionId = (await request(server, 'POST', '/api/v1/missions', { body: mission })).body.id
    await request(server, 'POST', `/api/v1/missions/${missionId}/run`, { body: {} })
    const spaceId = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Lab' } })).body.id
    const file = { path: 'plan.md', content: '# Plan\n\n- [x] One\n\n| a | b |\n|---|---|\n| 1 | 2 |' }
    await request(server, 'PUT', `/api/v1/spaces/${spaceId}/files/content`, { body: file })
    paths = [...PAGES, `/app/agents/${id}`, `/app/chats/${run.chatId}`, `/app/runs/${run.executionId}`, '/app/nowhere']
    paths.push(...['transcript', 'events'].map((tab) => `/app/runs/${run.executionId}?tab=${tab}`))
    paths.push(`/app/missions/${missionId}`, `/app/spaces/${spaceId}?file=plan.md`)
    paths.push(...['instructions', 'chats', 'attached', 'secrets'].map((tab) => `/app/spaces/${spaceId}?tab=${tab}`))
  })
  afterAll(async () => {
    await browser?.close()
    await server?.[Symbol.asyncDispose]()
    await folder?.[Symbol.asyncDispose]()
  })

  it.each([
    { colorScheme: 'light', width: 1440 },
    { colorScheme: 'dark', width: 375 },
  ] as const)(
    'pass axe, obey their policy, fit and are small: $colorScheme, $width pixels',
    async ({ colorScheme, width }) => {
      const viewport = { width, height: 800 }
      const { page, complaints } = await visit(browser, owner, '/app', {
        colorScheme,
        viewport,
        hasTouch: width < TABLET,
      })
      let loaded = 0
      const seen = new Set<string>()
      /** Returns the size of the files that have arrived since the last call (bytes). */
      const load = async () => {
        const before = loaded
        const names = await page.evaluate(() =>
          performance.getEntriesByType('resource').flatMap(({ name }) => (name.includes('/assets/') ? name : [])),
        )
        for (const name of names) {
          if (seen.has(name)) continue
          seen.add(name)
          const response = await fetch(name, { headers: { 'Accept-Encoding': 'gzip' } })
          loaded += Number(response.headers.get('content-length'))
          await response.arrayBuffer()
        }
        return loaded - before
      }
      const check = await examiner(page)
      for (const path of paths) {
        await page.evaluate((to) => history.pushState({}, '', to), path)
        const address = path.slice('/app'.length) || '/'
        await page.locator(`main[data-shown="${address}"] h1`).first().waitFor({ state: 'attached' })
        await expect.poll(() => page.locator('.animate-pulse').count()).toBe(0)
        // Both widths have the same elements, apart from the frame around every page.
        const rules = colorScheme === 'light' || path === '/app' ? undefined : ['color-contrast']
        expect([path, await check(rules)]).toEqual([path, []])
        expect([path, await overflow(page)]).toEqual([path, 0])
        if (width < TABLET) {
          // Phones of Apple would zoom in.
          const sizes = await page
            .locator('input[type=text], .field')
            .evaluateAll((fields) => fields.map((field) => Number.parseFloat(getComputedStyle(field).fontSize)))
          expect([path, Math.min(16, ...sizes)]).toEqual([path, 16])
          const marks = await page
            .locator('label')
            .evaluateAll((labels) =>
              labels.flatMap((label) =>
                getComputedStyle(label, '::after').content.includes('*') ? label.textContent : [],
              ),
            )
          if (path === '/app/agents/new') expect(marks).toEqual(['Name', 'System prompt'])
          await page.evaluate(() => document.documentElement.style.setProperty('font-size', '200%'))
          expect([path, '200 %', await overflow(page)]).toEqual([path, '200 %', 0])
          await page.evaluate(() => document.documentElement.style.removeProperty('font-size'))
        }
        if (width > TABLET) {
          await page.setViewportSize({ width: TABLET, height: 800 })
          expect([path, TABLET, await overflow(page)]).toEqual([path, TABLET, 0])
          await page.setViewportSize(viewport)
        }
        expect([path, (await load()) < (path === '/app' ? 200 : 80) * KB]).toEqual([path, true])
      }
      expect(complaints).toEqual([])
      await leave(page)
    },
  )

  it('find one of many agents as a person types, by the keyboard alone', async () => {
    const { token, userId } = await server.member({ organization: 'Many' })
    const create = (path: string, body: object) => request(server, 'POST', `/api/v1/${path}`, { token, body })
    const needle = (await create('agents', { name: 'Needle', systemPrompt: 'x' })).body.id
    await Promise.all(
      Array.from({ length: 60 }, (_, index) => create('agents', { name: `Hay ${index}`, systemPrompt: 'x' })),
    )
    const spaceId = (await create('spaces', { name: 'Barn' })).body.id
    const { secret } = await signedIn(server, userId)
    const { page, complaints } = await visit(browser, { url: server.url, cookie: secret }, '/app/missions')
    await page.getByRole('button', { name: 'New mission' }).first().click()
    await page.getByLabel('Title').fill('Daily')
    await page.getByLabel('Goal').fill('Find it')
    const agent = page.getByRole('combobox', { name: 'Agent' })
    await agent.press('ArrowDown')
    await page.getByText('These are the first. Type to find others.').waitFor()
    expect(await page.getByRole('option', { name: 'Needle' }).count()).toBe(0)
    await agent.pressSequentially('needle')
    await page.getByRole('option', { name: 'Needle', selected: true }).waitFor()
    expect(await (await examiner(page))()).toEqual([])
    await agent.press('Escape')
    await page.getByRole('listbox').waitFor({ state: 'detached' })
    await agent.fill('needle')
    await page.getByRole('option', { name: 'Needle', selected: true }).waitFor()
    await agent.press('Enter')
    await expect.poll(() => agent.inputValue()).toBe('Needle')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.waitForURL('**/app/missions/*')
    const missions = (await request(server, 'GET', '/api/v1/missions', { token })).body.missions
    expect(missions).toMatchObject([{ agentId: needle }])
    await page.goto(`/app/spaces/${spaceId}?tab=attached`)
    await page.getByLabel('Search: Agents').fill('needle')
    await page.getByLabel('Needle').check()
    await page.getByLabel('Search: Agents').fill('')
    await page.getByLabel('Hay 59').waitFor()
    expect(await page.getByLabel('Needle').isChecked()).toBe(true)
    await page.getByRole('button', { name: 'Save' }).click()
    await expect
      .poll(
        async () => (await request(server, 'GET', `/api/v1/spaces/${spaceId}`, { token })).body.space.assignedAgents,
      )
      .toEqual([needle])
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('offer the servers of all pages for an agent, and to try again if they cannot be read', async () => {
    const body = { name: 'Of the last page', mcpType: 'custom', url: 'http://127.0.0.1:9/mcp' }
    for (const name of [body.name, 'Of the first page'])
      await request(server, 'POST', '/api/v1/mcps', { body: { ...body, name } })
    const { page } = await visit(browser, owner, '/healthz')
    let isBroken = true
    const cursors: boolean[] = []
    await page.route(/trpc.*mcps\.list/, (route) => {
      const url = route.request().url()
      if (isBroken) return route.abort()
      cursors.push(url.includes('cursor'))
      return route.continue({ url: url.replace('%3A1000', '%3A1') })
    })
    await page.goto('/app/agents/new')
    await page.getByText('Tools', { exact: true }).click()
    const servers = page.getByRole('group', { name: 'MCP servers' })
    const again = servers.getByRole('button', { name: 'Try again' })
    await again.waitFor()
    isBroken = false
    await again.click()
    for (const name of ['Of the first page', body.name]) await servers.getByLabel(name).check()
    expect(cursors.slice(0, 2)).toEqual([false, true])
    await page.unroute(/trpc.*mcps\.list/)
    await leave(page)
  })

  it('show the source of a server that the operator declares, and no form to change it', async () => {
    const { page } = await visit(browser, owner, '/app/mcps')
    await page.getByText('Operator', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'declared' }).click()
    await page.getByText('The operator declares this server').waitFor()
    await page.getByRole('button', { name: 'Test the connection' }).waitFor()
    for (const name of ['Save', 'Delete the server']) expect(await page.getByRole('button', { name }).count()).toBe(0)
    await leave(page)
  })

  it('test all servers, and show in their rows which ones are usable', async () => {
    await using mcp = await startMcpServer()
    const { token, userId } = await server.member({ organization: 'Tested', role: 'admin' })
    const create = (name: string, url: string) =>
      request(server, 'POST', '/api/v1/mcps', { token, body: { name, mcpType: 'custom', url } })
    await create('Works', mcp.url)
    const { id } = (await create('Broken', 'http://127.0.0.1:9/mcp')).body
    const { secret } = await signedIn(server, userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret }, '/app/mcps')
    let asked = 0
    page.on('request', (one) => {
      if (one.url().includes('mcps.tools')) asked += 1
    })
    await page.getByRole('button', { name: 'Test all' }).click()
    const row = (name: string) => page.getByRole('listitem').filter({ hasText: name })
    await row('Works')
      .getByText(/^\d+ tools$/)
      .waitFor()
    await row('Broken').getByText('Not usable').waitFor()
    await page.getByText('One server cannot be used').waitFor()
    await row('Broken')
      .getByText(/cannot be used/)
      .waitFor()
    // A server that does not answer takes a minute of each try.
    expect(asked).toBe(2)
    // A person who does not wait reads the result on another page.
    const release = await holdBack(page, '**/trpc/mcps.tools**')
    await page.reload()
    await page.getByRole('button', { name: 'Test all' }).click()
    await page.getByRole('link', { name: 'Skills' }).click()
    await page.getByRole('heading', { name: 'Skills' }).waitFor()
    await release()
    await page.getByText('One server cannot be used').waitFor()
    await page.getByRole('link', { name: 'MCP servers' }).click()
    // Another address has another answer.
    await request(server, 'PATCH', `/api/v1/mcps/${id}`, { token, body: { url: mcp.url } })
    await page.reload()
    await page.getByRole('button', { name: 'Test all' }).click()
    await row('Broken')
      .getByText(/^\d+ tools$/)
      .waitFor()
    await row('Works').getByRole('button').click()
    await page.getByRole('button', { name: 'Test the connection' }).click()
    const others = page.getByLabel('Permission: All other tools')
    await expect.poll(() => others.locator('option').allTextContents()).toEqual(['Allow', 'Ask first', 'Deny'])
    await leave(page)
  })

  it('keep the list of tools open while permissions change', async () => {
    await using mcp = await startMcpServer()
    const mcpId = await createMcp(server, mcp.url)
    const permissions = [{ tool: 'ad', mode: 'deny' }]
    await request(server, 'PATCH', `/api/v1/mcps/${mcpId}`, { body: { permissions } })
    const { page } = await visit(browser, owner, `/app/mcps?mcp=${mcpId}`)
    await page.getByRole('button', { name: 'Test the connection' }).click()
    await page.getByText('The server lists no tool of this name.').waitFor()
    await page.getByLabel('Permission: ad', { exact: true }).selectOption('As all others')
    await page.getByText('The server lists no tool of this name.').waitFor({ state: 'detached' })
    const saved = async () => (await request(server, 'GET', `/api/v1/mcps/${mcpId}`)).body.mcp.permissions
    await page.getByLabel('Permission: add').selectOption('ask')
    await expect.poll(saved).toEqual([{ tool: 'add', mode: 'ask' }])
    expect(await page.getByLabel('Permission: add').inputValue()).toBe('ask')
    // A second change on a slow network replaces neither the first one nor that of another person.
    await request(server, 'PATCH', `/api/v1/mcps/${mcpId}`, { body: { permissions: [{ tool: '*', mode: 'ask' }] } })
    const release = await holdBack(page, '**/trpc/mcps.update')
    const choices = { add: 'deny', echo: 'allow' }
    for (const [tool, mode] of Object.entries(choices))
      await page.getByLabel(`Permission: ${tool}`, { exact: true }).selectOption(mode)
    for (const [tool, mode] of Object.entries(choices))
      await expect.poll(() => page.getByLabel(`Permission: ${tool}`, { exact: true }).inputValue()).toBe(mode)
    await release()
    const expected = Object.entries({ '*': 'ask', ...choices }).map(([tool, mode]) => ({ tool, mode }))
    await expect.poll(saved).toEqual(expected)
    await leave(page)
  })

  it('ask before what a person has written is lost, and show files that others change', async () => {
    const spaceId = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Shared' } })).body.id
    const write = (content: string) =>
      request(server, 'PUT', `/api/v1/spaces/${spaceId}/files/content`, { body: { path: 'a.md', content } })
    const read = async () =>
      (await request(server, 'GET', `/api/v1/spaces/${spaceId}/files/content?path=a.md`)).body.content
    await write('# One')
    const { page } = await visit(browser, owner, `/app/spaces/${spaceId}?file=a.md`)
    // The page itself has the only heading of the first level.
    await page.getByRole('heading', { name: 'One', level: 2 }).waitFor()
    await write('# Two')
    const file = { name: 'b.txt', mimeType: 'text/plain', buffer: Buffer.from('b') }
    await page.locator('input[type=file]').setInputFiles(file)
    await page.getByRole('heading', { name: 'Two' }).waitFor()
    const large = [1024 * 1024, 1024 * 1024 + 1].map((size) => {
      return { name: `${size}.bin`, mimeType: 'application/octet-stream', buffer: Buffer.alloc(size, 255) }
    })
    await page.locator('input[type=file]').setInputFiles(large)
    await page.getByText('1048577.bin is too large: at most 1.0 MB').waitFor()
    await page.getByRole('button', { name: '1048576.bin' }).waitFor()
    const shown = { path: 'chart.png', content: DOT, encoding: 'base64' }
    await request(server, 'PUT', `/api/v1/spaces/${spaceId}/files/content`, { body: shown })
    await page.locator('input[type=file]').setInputFiles({ ...file, name: 'broken.png', buffer: Buffer.from([0, 255]) })
    await page.getByRole('button', { name: 'broken.png' }).click()
    await page.getByText('This file is not text.').waitFor()
    await page.getByRole('button', { name: 'chart.png' }).click()
    const picture = page.getByRole('img', { name: 'chart.png' })
    await expect.poll(() => picture.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(1)
    await page.getByRole('button', { name: 'a.md' }).click()
    await page.getByRole('heading', { name: 'Two' }).waitFor()
    const asked: string[] = []
    page.on('dialog', (dialog) => {
      asked.push(dialog.message())
      void dialog.dismiss()
    })
    // Written in another form of Unicode, and not read by the page yet.
    await request(server, 'PUT', `/api/v1/spaces/${spaceId}/files/content`, {
      body: { path: '\u00e9.md', content: '' },
    })
    await page.locator('input[type=file]').setInputFiles({ ...file, name: 'e\u0301.md' })
    await expect.poll(() => asked.splice(0).join()).toContain('Replace files')
    await page.getByRole('tab', { name: 'Edit' }).click()
    await page.getByLabel('Content').fill('Mine')
    await page.getByRole('button', { name: 'b.txt' }).click()
    expect(await page.getByLabel('Content').inputValue()).toBe('Mine')
    await write('# Theirs')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('table', { name: 'a.md' }).getByText('# Theirs').waitFor()
    expect(await read()).toBe('# Theirs')
    expect(await page.getByLabel('Content').inputValue()).toBe('Mine')
    await page.getByRole('button', { name: 'Save' }).click()
    await expect.poll(read).toBe('Mine')
    await page.getByRole('button', { name: 'New file' }).click()
    await page.getByLabel('Path').fill('a.md')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByText('The space already has a file with this path.').waitFor()
    await page.getByLabel('Path').fill('c.md')
    await page.keyboard.press('Escape')
    await expect.poll(() => asked.length).toBe(2)
    for (const [index, name] of ['Cancel', 'Close'].entries()) {
      await page.getByRole('dialog').getByRole('button', { name, exact: true }).click()
      await expect.poll(() => asked.length).toBe(3 + index)
    }
    await page.evaluate(() => history.back())
    await expect.poll(() => asked.length).toBe(5)
    expect(await page.getByLabel('Path').inputValue()).toBe('c.md')
    await leave(page)
  })

  it('show all differences between versions of an agent, and restore an older one', async () => {
    const first = { name: 'Painted', systemPrompt: 'x', color: 'red', category: 'art' }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body: first })).body
    await request(server, 'PATCH', `/api/v1/agents/${id}`, { body: { color: 'blue', mcpTypes: ['mail'] } })
    const { page } = await visit(browser, owner, `/app/agents/${id}?tab=versions`)
    await page.getByRole('table', { name: 'Color' }).getByText('blue').waitFor()
    await page.getByRole('table', { name: 'Types of MCP servers' }).getByText('mail').waitFor()
    expect(await page.getByRole('table').count()).toBe(2)
    await page.getByRole('button', { name: 'Use this version again' }).click()
    await page.getByText('Saved', { exact: true }).waitFor()
    const { agent } = (await request(server, 'GET', `/api/v1/agents/${id}`)).body
    expect(agent).toMatchObject({ color: 'red', category: 'art', mcpTypes: [], version: 3 })
    await leave(page)
  })

  it('refuse to replace what others have saved meanwhile, show both texts, and then obey', async () => {
    const create = async (path: string, body: object) =>
      (await request(server, 'POST', `/api/v1/${path}`, { body })).body.id as string
    const skill = await create('skills', { name: 'shared', description: 'd', prompt: 'Before' })
    const space = await create('spaces', { name: 'Shared', instructions: 'Before' })
    const task = await create('tasks', { title: 'Shared', description: 'Before' })
    const mcp = await create('mcps', { name: 'Shared', description: 'Before', url: 'https://mcp.example.com/mcp' })
    const { organization } = (await request(server, 'GET', '/api/v1/profile')).body.profile
    const { page, complaints } = await visit(browser, owner)
    for (const [path, resource, label, field] of [
      [`skills?skill=${skill}`, `skills/${skill}`, 'Prompt', 'prompt'],
      [`spaces/${space}?tab=instructions`, `spaces/${space}`, 'Instructions', 'instructions'],
      [`tasks?task=${task}`, `tasks/${task}`, 'Description', 'description'],
      [`mcps?mcp=${mcp}`, `mcps/${mcp}`, 'Description', 'description'],
      ['settings/organization', `organizations/${organization.id}`, /^Name/, 'name'],
    ] as const) {
      const read = async () =>
        Object.values<Record<string, string>>((await request(server, 'GET', `/api/v1/${resource}`)).body).find(
          (value) => typeof value === 'object',
        )?.[field]
      const writeElsewhere = (text: string) =>
        request(server, 'PATCH', `/api/v1/${resource}`, { body: { [field]: text } })
      await page.goto(`/app/${path}`)
      const box = page.getByRole('textbox', { name: label })
      const save = page.getByRole('button', { name: 'Save', exact: true })
      await box.fill('Mine')
      await writeElsewhere('Theirs')
      await save.click()
      const versions = page.getByRole('group', { name: 'Their version and yours' })
      await versions.getByText('Theirs').waitFor()
      expect(await versions.getByText('Mine').count()).toBe(1)
      expect(await read()).toBe('Theirs')
      await page.getByRole('button', { name: 'Take their version' }).click()
      await expect.poll(() => box.inputValue()).toBe('Theirs')
      await box.fill('Mine again')
      await writeElsewhere('Theirs again')
      await save.click()
      await versions.getByText('Theirs again').waitFor()
      await save.click()
      await expect.poll(read).toBe('Mine again')
    }
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('take what a person has written while it was saved for no change of another person', async () => {
    const { id } = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Slow' } })).body
    const { page } = await visit(browser, owner, `/app/spaces/${id}?tab=instructions`)
    const box = page.getByRole('textbox', { name: 'Instructions' })
    const save = page.getByRole('button', { name: 'Save', exact: true })
    const release = await holdBack(page, '**/trpc/spaces.update')
    await box.fill('Be kind')
    await save.click()
    await page.locator('button[aria-busy]').waitFor()
    await box.fill('Be kind and brief')
    await release()
    await page.getByText('Saved', { exact: true }).waitFor()
    expect(await box.inputValue()).toBe('Be kind and brief')
    await save.click()
    await expect
      .poll(async () => (await request(server, 'GET', `/api/v1/spaces/${id}`)).body.space.instructions)
      .toBe('Be kind and brief')
    expect(await page.getByRole('group', { name: 'Their version and yours' }).count()).toBe(0)
    await leave(page)
  })

  it('save a form again although the read after the first save gets no answer', async () => {
    const { id } = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Stuck' } })).body
    const { page } = await visit(browser, owner, `/app/spaces/${id}?tab=instructions`)
    const box = page.getByRole('textbox', { name: 'Instructions' })
    const save = page.getByRole('button', { name: 'Save', exact: true })
    const stuck = Promise.withResolvers<void>()
    let isNext = false
    await page.route('**/trpc/spaces.update', (route) => {
      isNext = true
      return route.continue()
    })
    await page.route(/\/trpc\/[^?]*spaces\.get/, (route) => {
      if (!isNext) return route.continue()
      isNext = false
      stuck.resolve()
    })
    await box.fill('Be kind')
    await save.click()
    await stuck.promise
    await box.fill('Be kind and brief')
    await save.click()
    await expect
      .poll(async () => (await request(server, 'GET', `/api/v1/spaces/${id}`)).body.space.instructions)
      .toBe('Be kind and brief')
    await page.unrouteAll({ behavior: 'ignoreErrors' })
    await leave(page)
  })

  it('report the failure of a save whose form the person has left meanwhile', async () => {
    await request(server, 'POST', '/api/v1/tasks', { body: { title: 'Sum up' } })
    const { page } = await visit(browser, owner, '/app/tasks')
    await page.getByRole('button', { name: 'Sum up', exact: true }).click()
    const gate = Promise.withResolvers<void>()
    await page.route('**/trpc/tasks.update', (route) => gate.promise.then(() => route.abort()))
    const sent = page.waitForRequest('**/trpc/tasks.update')
    await page.getByLabel('Title').fill('Sum all up')
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await sent
    await page.goBack()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    gate.resolve()
    await page.getByText('The server cannot be reached').waitFor()
    await page.unrouteAll({ behavior: 'wait' })
    await leave(page)
  })

  it('show whole names on a phone, greetings as Markdown, and the first files of many', async () => {
    const create = async (path: string, body: object) =>
      (await request(server, 'POST', `/api/v1/${path}`, { body })).body.id as string
    const spaceId = await create('spaces', { name: `Reports of ${'many '.repeat(15)}years` })
    const agent = { name: 'Agent for the reports of the whole organization', systemPrompt: 'x' }
    const agentId = await create('agents', { ...agent, initialGreeting: '## Ask me\n\n- for *reports*' })
    await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message: 'How many?', spaceId } })
    const folder = 'reports/of/the/whole/organization'
    for (let index = 0; index < 201; index++) {
      const body = { path: `${folder}/${String(index).padStart(3, '0')}.md`, content: '' }
      await request(server, 'PUT', `/api/v1/spaces/${spaceId}/files/content`, { body })
    }
    await create('agents', { name: '🦄', systemPrompt: 'x' })
    const { page } = await visit(browser, owner, `/app/spaces/${spaceId}?tab=chats`)
    await page.setViewportSize({ width: 375, height: 800 })
    const isWhole = (element: Element) => element.scrollWidth <= element.clientWidth
    expect(await page.getByRole('link', { name: 'How many?' }).evaluate(isWhole)).toBe(true)
    expect(await page.getByRole('heading', { level: 1 }).evaluate(isWhole)).toBe(true)
    await page.goto(`/app/spaces/${spaceId}`)
    await page.getByRole('button', { name: '000.md' }).waitFor()
    expect(await page.getByText('000.md', { exact: true }).evaluate(isWhole)).toBe(true)
    expect(await page.getByRole('button', { name: '200.md' }).count()).toBe(0)
    await page.getByRole('button', { name: '199.md' }).scrollIntoViewIfNeeded()
    await page.getByRole('button', { name: '200.md' }).waitFor()
    await page.goto(`/app?agent=${agentId}`)
    await page.getByRole('heading', { name: 'Ask me' }).waitFor()
    await page.goto('/app/agents')
    await page.locator('[data-initials="🦄"]').waitFor()
    // A window of 1280 by 1024 pixels, enlarged to 400 %.
    await page.setViewportSize({ width: 320, height: 256 })
    await page.getByRole('button', { name: 'Open the navigation' }).click()
    await page.getByRole('dialog').getByRole('link', { name: 'Approvals' }).click()
    await page.getByRole('heading', { name: 'Approvals' }).waitFor()
    await page.setViewportSize({ width: 1280, height: 720 })
    await leave(page)
  })

  it('say on a phone when a key expires and when a program used it last', async () => {
    await request(server, 'POST', '/api/v1/keys', { body: { name: 'Pipeline', expiresInDays: 30 } })
    const { page } = await visit(browser, owner)
    await page.setViewportSize({ width: 375, height: 800 })
    await page.goto('/app/settings/keys')
    const key = page.getByRole('listitem').filter({ hasText: 'Pipeline' })
    await key.getByText(/Expires: .*Last used: Never/).waitFor()
    expect(await overflow(page)).toBe(0)
    await page.setViewportSize({ width: 1280, height: 720 })
    await leave(page)
  })

  it('say that the server is paused', async () => {
    await using paused = await startServer({ PAUSED: 'true' })
    const { page } = await visit(browser, await ownerOf(paused), '/app/runs')
    await page.getByRole('status').getByText('This server is paused').waitFor()
    await leave(page)
  })

  it('take a date with its time from the keyboard in one go', async () => {
    const { page } = await visit(browser, owner, '/app/missions')
    await page.getByRole('button', { name: 'New mission' }).first().click()
    await page.getByLabel('Runs').selectOption('once')
    const at = page.getByLabel('At', { exact: true })
    await at.focus()
    // The day is the same in the order of any language. Languages without halves of a day ignore the last key.
    for (const key of '121220271030a') {
      await page.keyboard.press(key)
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))))
    }
    await expect.poll(() => at.inputValue()).toBe('2027-12-12T10:30')
    page.once('dialog', (dialog) => void dialog.accept())
    await leave(page)
  })

  it('keep phones from correcting the letters of texts that programs read', async () => {
    const { page } = await visit(browser, owner, '/app/agents/new')
    await page.getByText('Form of the answers').click()
    for (const label of ['Model', 'Tags', 'JSON Schema of the answers']) {
      const field = page.getByLabel(label, { exact: true })
      const letters = field.evaluate((element: HTMLElement) => [element.autocapitalize, element.spellcheck])
      expect([label, await letters]).toEqual([label, ['none', false]])
    }
    expect(await page.getByLabel('System prompt').evaluate((element: HTMLElement) => element.spellcheck)).toBe(true)
    await leave(page)
  })

  it('change texts that the browser has translated', async () => {
    const { page, complaints } = await visit(browser, owner, '/app/missions')
    await page.getByRole('button', { name: 'New mission' }).first().click()
    await page.getByLabel('Runs').selectOption('cron')
    const dates = page.getByText(/Next runs: .*\d/)
    await dates.waitFor()
    // As translators do: each text moves into an element of its own.
    await page.evaluate(() => {
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
      const found: Node[] = []
      while (walker.nextNode()) found.push(walker.currentNode)
      for (const text of found) {
        const font = document.createElement('font')
        font.textContent = text.nodeValue
        text.parentNode?.replaceChild(font, text)
      }
    })
    await page.getByLabel('Cron expression', { exact: true }).fill('59 23 * * *')
    await expect.poll(() => page.locator('p').filter({ hasText: 'Next runs:' }).textContent()).toMatch(/23:59/)
    expect(complaints).toEqual([])
    page.once('dialog', (dialog) => void dialog.accept())
    await leave(page)
  })

  it('keep the line ends of a secret that is pasted, and ask before it is lost', async () => {
    const { page } = await visit(browser, owner, '/app/settings/secrets')
    await page.getByLabel('Name').fill('SIGNING_KEY')
    const value = page.getByLabel('Value')
    await value.evaluate((element) => {
      const clipboardData = new DataTransfer()
      clipboardData.setData('text/plain', '-----BEGIN-----\r\nabc\r\n-----END-----\r\n')
      element.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }))
    })
    page.once('dialog', (dialog) => void dialog.dismiss())
    await page.getByRole('link', { name: 'Webhooks' }).click()
    expect(await value.inputValue()).toBe('-----BEGIN-----\nabc\n-----END-----\n')
    expect(await value.evaluate((element) => getComputedStyle(element).getPropertyValue('-webkit-text-security'))).toBe(
      'disc',
    )
    const sent = page.waitForRequest((request) => request.method() === 'POST')
    await page.getByRole('button', { name: 'Save' }).click()
    expect((await sent).postDataJSON().secrets.SIGNING_KEY.value).toBe('-----BEGIN-----\nabc\n-----END-----\n')
    await page.getByText('Secret saved').waitFor()
    await page.getByRole('link', { name: 'Webhooks' }).click()
    await page.getByRole('heading', { name: 'Webhooks' }).waitFor()
    await leave(page)
  })

  it('list the runs of missions apart from the chats of people', async () => {
    const { page } = await visit(browser, owner, '/app/chats')
    await page.getByRole('link', { name: /^Hello/ }).waitFor()
    // A page that is small enough to scroll. The way back from an agent leads to its place.
    await page.setViewportSize({ width: 1280, height: 200 })
    await page.getByRole('link', { name: 'Agents', exact: true }).click()
    const box = page.locator('#main > div').last()
    const topOf = () => box.evaluate((element) => element.scrollTop)
    const agent = page.getByRole('link', { name: 'Ada' }).first()
    await agent.waitFor()
    await box.evaluate((element) => element.scrollTo({ top: 60 }))
    // A click would scroll there, too.
    await agent.scrollIntoViewIfNeeded()
    const top = await topOf()
    expect(top).toBeGreaterThan(0)
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))
    await agent.click()
    await page.getByLabel('System prompt').waitFor()
    await page.goBack()
    await expect.poll(topOf).toBe(top)
    await page.setViewportSize({ width: 1280, height: 720 })
    await page.goto('/app/chats')
    const ofPerson = page.getByRole('link', { name: /^Hello/ })
    const ofMission = page.getByRole('link', { name: /Daily/ })
    await ofPerson.waitFor()
    expect(await ofMission.count()).toBe(0)
    await page.getByRole('button', { name: 'Missions' }).click()
    await ofMission.waitFor()
    await expect.poll(() => ofPerson.count()).toBe(0)
    await ofMission.click()
    await page.waitForURL('**/app/chats/*?list=missions')
    await leave(page)
  })

  it('have no second scroll bar while they load', async () => {
    const { page } = await visit(browser, owner, '/app', { viewport: { width: 360, height: 400 } })
    for (const path of ['/app/tasks', '/app/settings/members']) {
      await page.route(/\/trpc\/[^?]*(tasks\.list|organizations\.members)/, () => {})
      await page.goto(path)
      await page.locator('.animate-pulse').first().waitFor()
      const [wider, higher] = await page.evaluate(() => {
        const { scrollWidth, clientWidth, scrollHeight, clientHeight } = document.documentElement
        return [scrollWidth - clientWidth, scrollHeight - clientHeight]
      })
      expect([path, wider, higher]).toEqual([path, 0, 0])
      await page.unrouteAll()
    }
    await leave(page)
  })

  it('draw whole numbers beside the chart of usage, which links to its runs', async () => {
    const member = await server.member({ organization: 'Few' })
    const { token } = member
    const agent = { name: 'Ada', systemPrompt: 'x', model: 'nobody/none' }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { token, body: agent })).body
    // The run fails before a model is asked, so that the report has no tokens.
    await request(server, 'POST', `/api/v1/agents/${id}/execute`, { token, body: { message: 'Hello' } })
    const { secret } = await signedIn(server, member.userId)
    const door = { url: server.url, cookie: secret }
    const { page } = await visit(browser, door, '/healthz', { viewport: { width: 1000, height: 800 } })
    // Browsers have languages that are no language tags, such as this one on some systems.
    await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'language', { value: 'en-US@posix' }))
    await page.goto('/app/usage')
    await page.locator('canvas').waitFor()
    await page.evaluate(() => {
      const { fillText } = CanvasRenderingContext2D.prototype
      document.documentElement.dataset.drawn = ''
      CanvasRenderingContext2D.prototype.fillText = function (...[text, ...place]) {
        document.documentElement.dataset.drawn += `${text};`
        fillText.call(this, text, ...place)
      }
    })
    await page.setViewportSize({ width: 700, height: 800 })
    const drawn = () => page.evaluate(() => document.documentElement.dataset.drawn ?? '')
    await expect.poll(drawn).toMatch(/\b0;1;/)
    expect(await drawn()).not.toMatch(/\d[.,]\d/)
    await page.emulateMedia({ forcedColors: 'active' })
    await page.reload()
    await page.locator('canvas').waitFor()
    await page.evaluate(() => {
      const { stroke } = CanvasRenderingContext2D.prototype
      const colours = new Set<unknown>()
      CanvasRenderingContext2D.prototype.stroke = function (...given: unknown[]) {
        if (this.lineWidth > 1) colours.add(this.strokeStyle)
        Reflect.apply(stroke, this, given)
      }
      Object.assign(document, { strokes: colours })
    })
    await page.setViewportSize({ width: 900, height: 800 })
    // One of the input, and one of the output.
    await expect.poll(() => page.evaluate(() => (document as { strokes?: Set<unknown> }).strokes?.size)).toBe(2)
    await page.emulateMedia({ forcedColors: null })
    await page.locator('dl').getByRole('link', { name: '1' }).click()
    await page.waitForURL('**/app/runs?status=failed&since=month')
    await page.goBack()
    await page.getByRole('cell').getByRole('link', { name: 'Ada' }).click()
    await page.waitForURL(`**/app/runs?agentId=${id}`)
    await leave(page)
  })

  it('list the runs of a space, by its link and by a filter', async () => {
    const { token, userId } = await server.member({ organization: 'Spaces of runs', role: 'admin' })
    const create = async (path: string, body: object): Promise<{ id: string }> =>
      (await request(server, 'POST', `/api/v1/${path}`, { token, body })).body
    const { id } = await create('agents', { name: 'Ada', systemPrompt: 'x' })
    const { id: spaceId } = await create('spaces', { name: 'Lab' })
    await create(`agents/${id}/execute`, { message: 'In the lab', spaceId })
    await create(`agents/${id}/execute`, { message: 'Elsewhere' })
    const { secret } = await signedIn(server, userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret }, `/app/spaces/${spaceId}`)
    await page.getByRole('main').getByRole('link', { name: 'Runs' }).click()
    await page.getByText('1 run', { exact: true }).waitFor()
    await page.getByRole('link', { name: 'In the lab' }).waitFor()
    const filter = page.getByRole('combobox', { name: 'Space' })
    expect(await filter.inputValue()).toBe('Lab')
    await filter.click()
    await page.getByRole('listbox', { name: 'Space' }).getByRole('option', { name: 'All' }).click()
    await page.getByText('2 runs', { exact: true }).waitFor()
    await leave(page)
  })

  it('save the steps, the form of the results and the missed runs of a mission', async () => {
    const { agents } = (await request(server, 'GET', '/api/v1/agents')).body
    const schedule = { type: 'cron', value: '0 8 * * *' }
    const body = { title: 'Exact', goal: 'Count', agentId: agents[0].id, schedule }
    const { id } = (await request(server, 'POST', '/api/v1/missions', { body })).body
    const { page } = await visit(browser, owner, `/app/missions/${id}`)
    const edit = async () => {
      await page.getByRole('button', { name: 'More actions' }).click()
      await page.getByRole('menuitem', { name: 'Edit the mission' }).click()
      await page.getByText('Steps and results').click()
    }
    const save = async () => {
      await page.getByRole('button', { name: 'Save', exact: true }).click()
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      return (await request(server, 'GET', `/api/v1/missions/${id}`)).body.mission
    }
    await edit()
    await page.getByLabel('After an outage').selectOption('Leave the missed runs out')
    await page.getByLabel('Maximum number of model steps').fill('7')
    await page.getByLabel('JSON Schema of the answers').fill('{"type": ')
    await page.getByText('This is not JSON').waitFor()
    expect(await page.getByRole('button', { name: 'Save', exact: true }).isDisabled()).toBe(true)
    await page.getByLabel('JSON Schema of the answers').fill('{"type": "object"}')
    const output = { schema: { type: 'object' } }
    expect(await save()).toMatchObject({ maxTurns: 7, output, schedule: { ...schedule, catchUp: 'skip' } })
    await edit()
    // The page reads what it has saved.
    await expect.poll(() => page.getByLabel('Maximum number of model steps').inputValue()).toBe('7')
    await page.getByLabel('Maximum number of model steps').fill('')
    await page.getByLabel('JSON Schema of the answers').fill('')
    expect(await save()).toMatchObject({ maxTurns: null, output: null, schedule: { catchUp: 'skip' } })
    await leave(page)
  })

  it('end a request without an answer, and load a page as soon as the server is back', async () => {
    const { context } = await visit(browser, owner, '/healthz')
    // Its clock is never given back.
    const page = await context.newPage()
    await page.clock.install()
    await page.goto('/app/missions')
    await page.getByRole('button', { name: 'New mission' }).first().click()
    await page.getByLabel('Title').fill('Silent')
    await page.getByLabel('Goal').fill('x')
    await page.getByRole('combobox', { name: 'Agent' }).click()
    await page.getByRole('option', { name: 'Ada' }).click()
    const create = '**/trpc/missions.create**'
    const asked = page.waitForRequest(create)
    await page.route(create, () => {})
    await page.getByRole('button', { name: 'Create' }).click()
    await asked
    await page.clock.fastForward(90_000)
    await page.getByText('The server has not answered').waitFor()
    await page.getByText('look before you repeat it').waitFor()
    await page.unroute(create)
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Silent' }).waitFor()

    // A file of a space takes as long as a slow network needs.
    const spaceId = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Remote' } })).body.id
    await page.goto(`/app/spaces/${spaceId}`)
    const release = await holdBack(page, '**/trpc/files.write**')
    const sent = page.waitForRequest('**/trpc/files.write**')
    const file = { name: 'large.txt', mimeType: 'text/plain', buffer: Buffer.alloc(900 * KB, 'x') }
    await page.locator('input[type=file]').setInputFiles(file)
    await sent
    await page.clock.fastForward(90_000)
    await release()
    await page.getByText('File saved', { exact: true }).waitFor()

    // A message whose answer was lost is sent again, and begins no second run.
    await page.goto('/app')
    const execute = '**/trpc/agents.execute**'
    await page.route(execute, (route) => route.fetch().then(() => route.abort()), { times: 1 })
    await composer(page).fill('Only once')
    await composer(page).press('Enter')
    await page.getByText('The server cannot be reached').waitFor()
    await composer(page).press('Enter')
    await page.waitForURL('**/app/chats/*')
    const { executions } = (await request(server, 'GET', '/api/v1/executions')).body
    expect(executions.filter(({ message }: { message: string }) => message === 'Only once')).toHaveLength(1)

    const all = '**/*'
    await page.route(all, (route) => route.abort())
    await page.getByRole('link', { name: 'Usage' }).click()
    await page.getByRole('main').getByRole('button', { name: 'Try again' }).waitFor()
    await page.unroute(all)
    await page.clock.fastForward(5_000)
    await page.getByRole('heading', { name: 'Usage' }).waitFor()
    await page.close()
  })

  it('offer to try again what a lost connection did not load, or a proxy refused', async () => {
    const { page, context } = await visit(browser, owner, '/app')
    await composer(page).waitFor()
    const file = '**/assets/usage-*.js'
    await page.route(file, (route) => route.abort())
    await context.setOffline(true)
    await page.getByRole('link', { name: 'Usage' }).click()
    const again = page.getByRole('main').getByRole('button', { name: 'Try again' })
    await again.waitFor()
    await page.unroute(file)
    // It is tried again by itself.
    await context.setOffline(false)
    await page.getByRole('heading', { name: 'Usage' }).waitFor()
    // A person on a slow network sees the name until the program is there.
    const program = Promise.withResolvers<void>()
    const script = '**/assets/index-*.js'
    await page.route(script, (route) => program.promise.then(() => route.continue()))
    await page.goto('/app', { waitUntil: 'commit' })
    await page.getByText('Muster …').waitFor()
    program.resolve()
    await composer(page).waitFor()
    expect(await page.getByText('Muster …').count()).toBe(0)
    await page.unroute(script)
    // After an update of the server its file has another name.
    await page.getByRole('link', { name: 'Agents', exact: true }).click()
    await page.getByRole('link', { name: 'New agent' }).click()
    await page.getByLabel('Name', { exact: true }).fill('Unsaved')
    // A save that fails says so where the person is, although the end of the form is further down.
    await page.getByLabel('System prompt').fill('x')
    await context.setOffline(true)
    await page.getByRole('button', { name: 'Create' }).click()
    const alert = page.getByRole('main').getByRole('alert')
    await expect.poll(() => alert.evaluate((it) => it.getBoundingClientRect().top < innerHeight - 20)).toBe(true)
    await context.setOffline(false)
    const gone = '**/assets/board-*.js'
    await page.route(gone, (route) => route.fulfill({ status: 404, body: 'Not found' }))
    // Safari asks for a failed file again only in a page that is loaded again. The page does so itself, but once.
    let loads = 0
    const onRequest = (one: Request) => {
      if (one.isNavigationRequest()) loads += 1
    }
    page.on('request', onRequest)
    page.once('dialog', (dialog) => void dialog.accept())
    await page.getByRole('link', { name: 'Tasks' }).click()
    await expect.poll(() => loads).toBe(1)
    await expect.poll(() => page.title()).toBe('Page not loaded · Muster')
    await page.getByText('The server has been updated. Load this page again.').waitFor()
    let isGoneUntil = 2
    await page.route(gone, (route) =>
      loads < isGoneUntil ? route.fulfill({ status: 404, body: 'Not found' }) : route.continue(),
    )
    await again.click()
    await page.getByRole('heading', { name: 'Tasks' }).waitFor()
    expect(loads).toBe(2)
    // It does so at each update.
    for (const _ of [1, 2]) {
      await page.goto('/app/agents')
      isGoneUntil = loads + 1
      await page.getByRole('link', { name: 'Tasks' }).click()
      await page.getByRole('heading', { name: 'Tasks' }).waitFor()
    }
    page.off('request', onRequest)
    await page.unroute(gone)
    await page.evaluate(() => history.pushState({}, '', '/app/nowhere'))
    await expect.poll(() => page.title()).toBe('Page not found · Muster')
    // A session that is refused is read once.
    let refused = 0
    await page.route('**/api/auth/session', (route) => {
      refused += 1
      return route.fulfill({ status: 403, json: { message: 'Forbidden', code: 'forbidden' } })
    })
    await page.reload()
    await page.getByText('Forbidden').waitFor()
    expect(refused).toBe(1)
    await page.unroute('**/api/auth/session')
    await leave(page)
  })

  it('load again for an update when a person opens a page of it, and stay when a link is touched', async () => {
    const { page } = await visit(browser, owner, '/app/agents')
    const link = page.getByRole('link', { name: 'Tasks' })
    await link.waitFor()
    const loads: string[] = []
    await page.route('**/assets/board-*.js', (route) =>
      loads.length ? route.continue() : route.fulfill({ status: 404, body: 'Not found' }),
    )
    page.on('request', (one) => one.isNavigationRequest() && loads.push(new URL(one.url()).pathname))
    // The page asks whether the server is there before it decides.
    const asked = page.waitForResponse((response) => new URL(response.url()).pathname === '/app')
    await link.hover()
    await asked
    await link.click()
    await page.getByRole('heading', { name: 'Tasks' }).waitFor()
    expect(loads).toEqual(['/app/tasks'])
    await page.unrouteAll()
    await leave(page)
  })

  it('have files that are cached forever, compressed, and revalidated with 304', async () => {
    const html = await (await fetch(`${server.url}/app`)).text()
    const path = /\/app\/assets\/[\w.-]+\.js/.exec(html)?.[0] ?? ''
    const response = await fetch(server.url + path, { headers: { 'Accept-Encoding': 'br' } })
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'cache-control': 'public, max-age=31536000, immutable',
      'content-encoding': 'br',
      'content-type': 'text/javascript; charset=utf-8',
      vary: 'Accept-Encoding',
    })
    const headers = { 'Accept-Encoding': 'br', 'If-None-Match': response.headers.get('etag') ?? '' }
    expect((await fetch(server.url + path, { headers })).status).toBe(304)
    for (const bad of ['/app/assets/nothing.js', '/app/assets/..%2findex.html', '/app/assets/.stamp']) {
      expect([bad, (await fetch(server.url + bad)).status]).toEqual([bad, 404])
    }
  })

  it('search the lists of all resources, and keep the text in the address', async () => {
    await request(server, 'POST', '/api/v1/chats', { body: { title: 'Harbour plans' } })
    await request(server, 'POST', '/api/v1/mcps', { body: { name: 'Calculator', url: 'https://mcp.example.com' } })
    for (const name of ['Lighthouse', 'Other space']) {
      await request(server, 'POST', '/api/v1/spaces', { body: { name } })
    }
    const { agents } = (await request(server, 'GET', '/api/v1/agents?owner=me&limit=1')).body
    for (const title of ['Weather report', 'Other mission']) {
      const body = { title, goal: 'Say it.', agentId: agents[0].id }
      await request(server, 'POST', '/api/v1/missions', { body })
    }
    const { page } = await visit(browser, owner, '/app/chats')
    for (const [path, list, text, wanted, other] of [
      ['chats', 'Chats', 'HARB', 'Harbour plans', 'Hello'],
      ['skills', 'Skills', 'brief', 'Research Brief', 'Code Review'],
      ['mcps', 'MCP servers', 'calcu', 'Calculator', 'declared'],
      ['spaces', 'Spaces', 'LIGHT', 'Lighthouse', 'Other space'],
      ['missions', 'Missions', 'weather', 'Weather report', 'Other mission'],
    ] as const) {
      await page.goto(`/app/${path}`)
      const main = page.locator('main')
      const row = (name: string) => main.locator('ul').getByText(name, { exact: true })
      await row(other).first().waitFor()
      await page.getByLabel(`Search: ${list}`).fill(text)
      await row(other).first().waitFor({ state: 'detached' })
      expect(new URL(page.url()).search).toBe(`?search=${text}`)
      await row(wanted).first().click()
      await page.waitForURL((url) => url.href !== new URL(`/app/${path}?search=${text}`, url).href)
      await page.goBack()
      await page.waitForURL(`**/app/${path}?search=${text}`)
      await page.reload()
      await row(wanted).first().waitFor()
      // Rows of the search before are marked until those of this one come.
      const gate = Promise.withResolvers<void>()
      await page.route(`**/trpc/*${path}.list*`, (route) => gate.promise.then(() => route.continue()))
      await page.getByLabel(`Search: ${list}`).fill('absent')
      await main.locator('[aria-busy=true]').getByText(wanted, { exact: true }).first().waitFor()
      gate.resolve()
      await main.getByRole('status').getByText('Nothing fits').waitFor()
      await page.unrouteAll({ behavior: 'wait' })
    }
    await leave(page)
  })

  it('show the first ones of many skills, and more if they are asked for', async () => {
    const { token, userId } = await server.member({ organization: 'Skilled', role: 'owner' })
    for (let index = 0; index < 101; index++) {
      const body = { name: `skill-${index}`, description: 'Works', prompt: 'x' }
      await request(server, 'POST', '/api/v1/skills', { token, body })
    }
    const { secret } = await signedIn(server, userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret }, '/app/skills')
    const rows = page.locator('section').filter({ hasText: 'Your organization' }).getByRole('listitem')
    await expect.poll(() => rows.count()).toBe(100)
    await page.getByRole('button', { name: 'Show more' }).click()
    await expect.poll(() => rows.count()).toBe(101)
    await leave(page)
  })

  it('import a skill from a file, after the person has seen and corrected its fields', async () => {
    const { page, complaints } = await visit(browser, owner, '/app/skills')
    const picker = page.locator('input[type=file]')
    const mimeType = 'application/octet-stream'
    await picker.setInputFiles({ name: 'skill.zip', mimeType, buffer: Buffer.from('PK\x03\x04') })
    await page.getByText('skill.zip was not imported. It is an archive.').waitFor()
    const text =
      '---\nname: tide-tables\ndescription: Reads tables.\nlicense: MIT\n---\n# Tides\n\nSee references/a.md.'
    await page.getByLabel('Search: Skills').evaluate((element, content) => {
      const dataTransfer = new DataTransfer()
      dataTransfer.items.add(new File([content], 'SKILL.md'))
      element.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }))
    }, text)
    const dialog = page.getByRole('dialog', { name: 'New skill' })
    await dialog.getByText('Not imported: license.').waitFor()
    await dialog.getByText('The prompt names other files: references/a.md.').waitFor()
    expect(await dialog.getByLabel('Name', { exact: true }).inputValue()).toBe('tide-tables')
    await dialog.getByLabel('Description').fill('Reads tables of tides.')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('button', { name: 'Tide Tables' }).waitFor()
    const { skills } = (await request(server, 'GET', '/api/v1/skills?search=tide')).body
    const { skill } = (await request(server, 'GET', `/api/v1/skills/${skills.organization[0].id}`)).body
    expect(skill).toMatchObject({
      name: 'tide-tables',
      description: 'Reads tables of tides.',
      prompt: '# Tides\n\nSee references/a.md.',
    })
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('offer newer versions of skills of other organizations, which stay at their versions', async () => {
    const { token } = await server.member({ organization: 'Authors' })
    const skill = { name: 'star-charts', description: 'Reads stars.', prompt: 'One', visibility: 'public' }
    const skillId = (await request(server, 'POST', '/api/v1/skills', { token, body: skill })).body.id
    const agent = { name: 'Navigator', systemPrompt: 'x', skillIds: [skillId] }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body: agent })).body
    const space = { name: 'Bridge', skillIds: [skillId] }
    const spaceId = (await request(server, 'POST', '/api/v1/spaces', { body: space })).body.id
    await request(server, 'PATCH', `/api/v1/skills/${skillId}`, { token, body: { prompt: 'Two' } })
    const { page, complaints } = await visit(browser, owner, `/app/agents/${id}`)
    for (const path of [`agents/${id}`, `spaces/${spaceId}?tab=attached`]) {
      await page.goto(`/app/${path}`)
      const adopt = page.getByRole('button', { name: 'Use version 2', includeHidden: true })
      await adopt.waitFor({ state: 'attached' })
      // Sections of the editor are closed.
      await adopt.evaluate((button: HTMLElement) => button.closest('details')?.setAttribute('open', ''))
      await page.getByRole('listitem').filter({ has: adopt }).getByText('Star Charts').waitFor()
      await adopt.click()
      await adopt.waitFor({ state: 'detached' })
    }
    const { skillRefs } = (await request(server, 'GET', `/api/v1/agents/${id}`)).body.agent
    expect(skillRefs).toMatchObject([{ skillId, version: 2, latestVersion: 2 }])
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('align the columns of a table as its text asks', async () => {
    const spaceId = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Tables' } })).body.id
    const content = '| left | middle | right |\n|---|:-:|--:|\n| 1 | 2 | 3 |'
    await request(server, 'PUT', `/api/v1/spaces/${spaceId}/files/content`, { body: { path: 'a.md', content } })
    const { page } = await visit(browser, owner, `/app/spaces/${spaceId}?file=a.md`)
    const cells = page.getByRole('cell')
    await cells.first().waitFor()
    const aligns = cells.evaluateAll((all) => all.map((cell) => getComputedStyle(cell).textAlign))
    expect(await aligns).toEqual(['start', '-webkit-center', '-webkit-right'])
    await leave(page)
  })

  it('search all files of a space, also those that the list has not read yet', async () => {
    const spaceId = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Many files' } })).body.id
    for (const path of ['docs/Notes.md', ...Array.from({ length: 10 }, (_, index) => `log/${index}.txt`), 'z/notes.md'])
      await request(server, 'PUT', `/api/v1/spaces/${spaceId}/files/content`, { body: { path, content: path } })
    const { page } = await visit(browser, owner)
    // Pages of five files, where a space can have 2,000.
    await page.route('**/trpc/*files.list*', (route) =>
      route.continue({ url: route.request().url().replaceAll('limit%22%3A200', 'limit%22%3A5') }),
    )
    await page.goto(`/app/spaces/${spaceId}`)
    const files = page.getByRole('region', { name: 'Files' }).getByRole('listitem')
    await page.getByLabel('Search: Files').fill('NOTES md')
    await expect
      .poll(() => files.allInnerTexts())
      .toEqual([expect.stringContaining('docs/'), expect.stringContaining('z/')])
    await files.last().click()
    await page.getByText('z/notes.md').last().waitFor()
    expect(await files.count()).toBe(2)
    await page.getByLabel('Search: Files').fill('absent')
    await page.getByRole('status').getByText('Nothing fits').waitFor()
    await page.unrouteAll({ behavior: 'wait' })
    await leave(page)
  })

  it('ask once before a page with two changed forms is left', async () => {
    const { page } = await visit(browser, owner, '/app/settings/profile')
    await page.getByLabel('Name', { exact: true }).fill('Another name')
    await page.getByLabel('New password').fill('correct horse battery')
    let asked = 0
    page.on('dialog', (dialog) => {
      asked += 1
      void (asked === 1 ? dialog.dismiss() : dialog.accept())
    })
    await page.getByRole('link', { name: 'Keys' }).click()
    await expect.poll(() => asked).toBe(1)
    expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('Another name')
    await page.getByRole('link', { name: 'Keys' }).click()
    await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor()
    expect(asked).toBe(2)
    await leave(page)
  })

  it('have a palette that finds chats, spaces and all agents by the keyboard alone', async () => {
    await request(server, 'POST', '/api/v1/chats', { body: { title: 'An old traite\u0301' } })
    for (const name of ['Space of tides', 'Cafe\u0301 of the harbour'])
      await request(server, 'POST', '/api/v1/spaces', { body: { name } })
    const { page } = await visit(browser, owner, '/app/agents?show=public')
    await page.getByText('Agents that other organizations make public appear here.').waitFor()
    const palette = page.getByRole('combobox')
    // The keys of a Cyrillic keyboard, then those of Firefox for its console, which change nothing.
    const cyrillic = { key: 'л', code: 'KeyK', ctrlKey: true }
    await page.evaluate((keys) => window.dispatchEvent(new KeyboardEvent('keydown', keys)), cyrillic)
    await palette.waitFor()
    await page.keyboard.press('Control+Shift+k')
    await page.keyboard.press('Control+k')
    await palette.waitFor({ state: 'detached' })
    await page.keyboard.press('Control+k')
    await palette.waitFor()
    await page.keyboard.type('secretary')
    await page.getByRole('option', { name: 'Secretary' }).waitFor()
    // The server alone finds it: the accent of its title is a character of its own.
    const gate = Promise.withResolvers<void>()
    await page.route('**/trpc/**', async (route) => {
      await gate.promise
      await route.continue()
    })
    await page.getByRole('combobox').fill('old TRAITÉ')
    await page.getByRole('dialog').getByText('Loading').waitFor()
    gate.resolve()
    await page.getByRole('option', { name: 'An old traite\u0301' }).waitFor()
    await page.unrouteAll({ behavior: 'wait' })
    // The lists of the newest things come after what the search finds, and leave the current option.
    await page.reload()
    const first = Promise.withResolvers<void>()
    let lists = 0
    await page.route(/\/trpc\/[^?]*spaces\.list/, async (route) => {
      lists += 1
      if (lists === 1) await first.promise
      await route.continue()
    })
    await page.getByText('Agents that other organizations make public appear here.').waitFor()
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox').fill('space')
    await page.getByRole('option', { name: 'Space of tides' }).waitFor()
    const current = page.getByRole('option', { name: 'Space of tides', selected: true })
    const goUp = async () => {
      if (!(await current.count())) await page.keyboard.press('ArrowUp')
      return current.count()
    }
    await expect.poll(goUp).toBe(1)
    first.resolve()
    await page.getByRole('option', { name: 'Cafe\u0301 of the harbour' }).waitFor()
    expect(await current.count()).toBe(1)
    await page.unrouteAll({ behavior: 'wait' })
    await page.getByRole('combobox').fill('CAFÉ')
    await page.getByRole('option', { name: 'Cafe\u0301 of the harbour' }).waitFor()
    await page.getByRole('combobox').fill('ada agent')
    await page.getByRole('option', { name: 'Ada' }).waitFor()
    await page.keyboard.press('Enter')
    await page.waitForURL('**/app/agents/*')
    await page.getByLabel('System prompt').fill('Changed')
    await page.getByRole('tab', { name: 'Code' }).click()
    await page.waitForURL('**/app/agents/*?tab=code')
    await page.getByRole('tab', { name: 'Edit' }).click()
    expect(await page.getByLabel('System prompt').inputValue()).toBe('Changed')
    await leave(page)
  })
})

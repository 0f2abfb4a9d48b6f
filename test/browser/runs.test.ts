import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Prisma } from '../../src/db/client.ts'
import { type Door, hasBrowser, launch, leave, ownerOf, visit } from '../support/browser.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

const MANY = process.env.NIGHTLY === '1' ? 100_000 : 5_000

/** Copies a run, each copy a second older than the previous one. */
async function copy({ service: { deps } }: TestServer, executionId: string): Promise<void> {
  const columns = await deps.db.$queryRaw<{ name: string }[]>`SELECT "name" FROM pragma_table_info('Execution')`
  const changes: Record<string, string> = {
    id: `'copy-' || n`,
    rootExecutionId: `'copy-' || n`,
    queueSeq: 'n + 1',
    createdAt: `"createdAt" - n * 1000`,
  }
  const names = columns.map(({ name }) => `"${name}"`).join(', ')
  const values = columns.map(({ name }) => changes[name] ?? `"${name}"`).join(', ')
  await deps.db.$executeRaw(
    Prisma.raw(`INSERT INTO "Execution" (${names})
      WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${MANY})
      SELECT ${values} FROM "Execution", numbers WHERE "id" = '${executionId}'`),
  )
}

describe.skipIf(!hasBrowser)('the runs in the console', () => {
  let browser: Browser
  let server: TestServer
  let owner: Door
  let agentId: string
  let executionId: string
  const execute = async (message: string) =>
    (await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message } })).body.executionId
  beforeAll(async () => {
    browser = await launch()
    server = await startServer()
    owner = await ownerOf(server)
    agentId = (await request(server, 'POST', '/api/v1/agents', { body: { name: 'Ada', systemPrompt: 'x' } })).body.id
    executionId = await execute('The first')
    await copy(server, executionId)
  })
  afterAll(async () => {
    await browser?.close()
    await server?.[Symbol.asyncDispose]()
  })

  it('scroll through thousands of rows with few elements, and show new rows by themselves', async () => {
    const { page, complaints } = await visit(browser, owner, '/app/runs')
    await page.getByText(`${(MANY + 1).toLocaleString('en-GB')} runs`).waitFor()
    const rows = page.getByRole('rowgroup').last().getByRole('row')
    const box = page.getByRole('rowgroup').last()
    const lastIndex = async () => Number(await rows.last().getAttribute('aria-rowindex'))
    for (const wanted of [150, 600, 1_500]) {
      // The next page is read when the end comes near.
      await expect
        .poll(async () => {
          await box.evaluate((element) => element.scrollTo({ top: element.scrollHeight }))
          return lastIndex()
        })
        .toBeGreaterThan(wanted)
      expect(await rows.count()).toBeLessThan(80)
    }
    // The way back leads to the row that was opened, a link to the top.
    const topOf = () => box.evaluate((element) => element.scrollTop)
    await box.evaluate((element) => element.scrollTo({ top: 30_000 }))
    await expect.poll(topOf).toBe(30_000)
    await rows.nth(20).getByRole('link').click()
    await page.getByRole('tablist').waitFor()
    await page.goBack()
    await expect.poll(topOf).toBe(30_000)
    await page.getByRole('link', { name: 'Tasks' }).click()
    await page.getByRole('link', { name: 'Runs' }).click()
    await rows.first().waitFor()
    expect(await topOf()).toBe(0)
    await execute('A new one')
    await page.getByText('A new one').waitFor()
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('can be read at a zoom of 400 %, as tasks can', async () => {
    await request(server, 'POST', '/api/v1/tasks', { body: { title: 'Small' } })
    const { page } = await visit(browser, owner, '/app/runs', { viewport: { width: 320, height: 256 } })
    for (const [path, row] of [
      ['/app/runs', page.getByRole('rowgroup').last().getByRole('row').first()],
      ['/app/tasks', page.getByRole('article').filter({ hasText: 'Small' })],
    ] as const) {
      await page.goto(path)
      await row.waitFor()
      const isReached = await row.evaluate((element) => {
        element.scrollIntoView({ block: 'nearest' })
        const { left, top, height } = element.getBoundingClientRect()
        return element.contains(document.elementFromPoint(left + 5, top + height / 2))
      })
      expect([path, isReached]).toEqual([path, true])
    }
    await leave(page)
  })

  it('name agent and failure on a phone, and have one line each in a wide window', async () => {
    await server.service.deps.db.execution.update({
      where: { id: executionId },
      data: { status: 'failed', error: 'The key was refused' },
    })
    const { page } = await visit(browser, owner, `/app/runs?status=failed&agentId=${agentId}`, {
      viewport: { width: 360, height: 740 },
    })
    const row = page.getByRole('row').filter({ hasText: 'The first' })
    const reason = row.getByText('The key was refused').filter({ visible: true })
    const measure = async () => {
      await row.getByText('Ada').waitFor()
      const [outer, inner] = [await row.boundingBox(), await reason.boundingBox()]
      return { height: outer!.height, isInside: inner!.y + inner!.height <= outer!.y + outer!.height }
    }
    expect(await measure()).toEqual({ height: 60, isInside: true })
    await page.setViewportSize({ width: 1_280, height: 740 })
    await expect.poll(measure).toEqual({ height: 44, isInside: true })
    await expect.poll(() => row.locator('..').evaluate((element) => element.getBoundingClientRect().height)).toBe(44)
    await page.setViewportSize({ width: 360, height: 740 })
    await server.service.deps.db.execution.update({
      where: { id: executionId },
      data: { status: 'completed', error: null },
    })
    await leave(page)
  })

  it('keep their filters in the URL, as the audit log does', async () => {
    await request(server, 'POST', '/api/v1/skills', { body: { name: 'listed', description: 'd', prompt: 'p' } })
    const { page } = await visit(browser, owner, '/app/runs')
    await page.getByLabel('Status').selectOption({ label: 'Cancelled' })
    await page.getByText('No run fits these filters').waitFor()
    expect(new URL(page.url()).search).toBe('?status=cancelled')
    await page.reload()
    await page.getByText('No run fits these filters').waitFor()
    await page.getByRole('button', { name: 'Clear the filters' }).click()
    await page.getByText('The first').first().waitFor()
    await page.goto('/app/settings/audit')
    await page.getByLabel('Action').fill('skill.create')
    await expect.poll(() => page.locator('main li code').allTextContents()).toEqual(['skill.create'])
    // A field of a date has a value as soon as its year has a digit. The day is the same in the order of any language.
    await page.getByLabel('Until').focus()
    for (const key of '11112099') {
      await page.keyboard.press(key)
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))))
    }
    await expect.poll(() => new URL(page.url()).searchParams.get('until')).toBe('2099-11-11')
    await page.reload()
    await expect.poll(() => page.locator('main li code').allTextContents()).toEqual(['skill.create'])
    expect(await page.getByLabel('Action').inputValue()).toBe('skill.create')
    await page.getByTitle('Show only events of this actor').click()
    await expect.poll(() => new URL(page.url()).searchParams.get('actorId')).toBeTruthy()
    const actor = page.getByLabel('By').locator('option:checked')
    await expect.poll(() => actor.textContent()).toBe('owner')
    await page.goto('/app/settings/audit?actorId=left')
    await expect.poll(() => actor.textContent()).toBe('A former member')
    await leave(page)
  })

  it('use the clock of the server if that of the browser is wrong, and name units and time zones', async () => {
    const { page } = await visit(browser, owner, '/app', { timezoneId: 'Pacific/Apia', locale: 'de-DE' })
    await page.clock.setFixedTime(Date.now() + 25 * 3_600_000)
    await execute('Just now')
    await page.goto('/app/runs')
    await page.getByLabel('Since').selectOption({ label: 'Last hour' })
    const row = page.getByRole('row').filter({ hasText: 'Just now' })
    await row.waitFor()
    expect(await row.locator('time').textContent()).not.toMatch(/[hd]/)
    await page
      .getByText(/^vor \d+ Sek\.$/)
      .first()
      .waitFor()
    const schedule = { type: 'cron', value: '0 8 * * *', timezone: 'Europe/Berlin' }
    const mission = { title: 'Daily', goal: 'Sum up', agentId, schedule }
    const { id } = (await request(server, 'POST', '/api/v1/missions', { body: mission })).body
    await page.goto(`/app/missions/${id}`)
    await page.getByRole('heading', { name: 'Next runs in the time of Europe/Berlin' }).waitFor()
    await leave(page)
  })

  it('name their person, agent, mission and space, and lists of missions name the failure', async () => {
    const create = async (path: string, body: object) =>
      (await request(server, 'POST', `/api/v1/${path}`, { body })).body.id as string
    const spaceId = await create('spaces', { name: 'Harbour' })
    const keyless = await create('agents', { name: 'Keyless', systemPrompt: 'x', model: 'anthropic/none' })
    const mission = { title: 'Tide table', goal: 'Say it.', agentId: keyless, spaceId, schedule: { type: 'none' } }
    const missionId = await create('missions', mission)
    await request(server, 'POST', `/api/v1/missions/${missionId}/run`, { body: {} })
    const failed = async () =>
      (await request(server, 'GET', `/api/v1/executions?missionId=${missionId}&status=failed`)).body.executions[0]
    await expect.poll(failed).toBeTruthy()
    const { id, error } = await failed()
    const { page, complaints } = await visit(browser, owner, `/app/runs/${id}`)
    const facts = page.locator('dl')
    await facts.getByText('You', { exact: true }).waitFor()
    for (const name of ['Keyless', 'Harbour']) await facts.getByRole('link', { name }).waitFor()
    await facts.getByRole('link', { name: 'Tide table' }).click()
    const reason = page.getByRole('listitem').getByText(error)
    await reason.waitFor()
    await page.getByRole('link', { name: 'Keyless' }).waitFor()
    // A phone has room for the reason, and the row fits.
    const window = page.viewportSize() ?? { width: 1280, height: 720 }
    await page.setViewportSize({ width: 375, height: 800 })
    const row = page.getByRole('listitem').filter({ hasText: error })
    expect(await row.evaluate((it) => it.scrollWidth - it.clientWidth)).toBe(0)
    expect(await reason.evaluate((it) => it.clientWidth)).toBeGreaterThan(250)
    await page.setViewportSize(window)
    await page.getByRole('link', { name: 'Runs', exact: true }).click()
    await page.getByRole('row').filter({ hasText: 'Keyless' }).getByText('You', { exact: true }).waitFor()
    await page.getByRole('link', { name: 'Missions' }).click()
    await page.getByRole('listitem').getByText(error).waitFor()
    await page.getByLabel('State').selectOption('Paused')
    await page.getByRole('status').getByText('Nothing fits').waitFor()
    await page.getByLabel('State').selectOption('Ready')
    await page.getByRole('link', { name: 'Tide table' }).waitFor()
    expect(new URL(page.url()).search).toBe('?status=pending')
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('have a link to each moment of a run', async () => {
    const { page } = await visit(browser, owner, `/app/runs/${executionId}`)
    const bar = page.getByRole('list', { name: 'Lane of Ada' }).getByRole('link').first()
    // A system that replaces colours leaves those of bars.
    const style = await bar.locator('span').evaluate((element) => getComputedStyle(element).forcedColorAdjust)
    expect(style).toBe('none')
    await bar.click()
    await page.getByRole('region', { name: 'Events' }).waitFor()
    const { searchParams } = new URL(page.url())
    const link = page.getByRole('link', { name: `Link to this moment ${searchParams.get('seq')}`, exact: true })
    await link.waitFor()
    await page.reload()
    await link.waitFor()
    await leave(page)
  })
})

import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Door, hasBrowser, holdBack, launch, leave, ownerOf, setHidden, visit } from '../support/browser.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

describe.skipIf(!hasBrowser)('the board of tasks', () => {
  let browser: Browser
  let server: TestServer
  let owner: Door
  beforeAll(async () => {
    browser = await launch()
    server = await startServer()
    owner = await ownerOf(server)
  })
  afterAll(async () => {
    await browser?.close()
    await server?.[Symbol.asyncDispose]()
  })

  const create = async (body: object) => (await request(server, 'POST', '/api/v1/tasks', { body })).body.id as string
  const statusOf = async (id: string) => (await request(server, 'GET', `/api/v1/tasks/${id}`)).body.task.status

  it("changes a card's status when the card is dragged, and prints every column", async () => {
    const id = await create({ title: 'Drag me' })
    const { page, complaints } = await visit(browser, owner, '/app/tasks')
    const card = page.locator(`[data-task="${id}"]`)
    await card.waitFor()
    await card.dragTo(page.locator('[data-status=in_progress]'))
    await expect.poll(() => statusOf(id)).toBe('in_progress')
    await page.locator(`[data-status=in_progress] [data-task="${id}"]`).waitFor()
    // Paper has no room beside it.
    const whole = page.viewportSize()!
    await page.setViewportSize({ width: 794, height: 1123 })
    await page.emulateMedia({ media: 'print' })
    const right = page.locator('[data-status]').evaluateAll((columns) => {
      return Math.max(...columns.map((column) => column.getBoundingClientRect().right))
    })
    expect(await right).toBeLessThanOrEqual(794)
    await page.emulateMedia({ media: null })
    await page.setViewportSize(whole)
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('finds cards by a search beside other filters, and keeps its text in the address', async () => {
    const [wanted, other] = [await create({ title: 'Find ME' }), await create({ title: 'Stay away', priority: 'high' })]
    const { page } = await visit(browser, owner, '/app/tasks')
    const card = (id: string) => page.locator(`[data-task="${id}"]`)
    await card(other).waitFor()
    await page.getByLabel('Search: Tasks').fill('find me')
    await card(other).waitFor({ state: 'detached' })
    await card(wanted).waitFor()
    await page.reload()
    await card(wanted).waitFor()
    expect(await card(other).count()).toBe(0)
    await page.getByLabel('Priority').selectOption('high')
    await card(wanted).waitFor({ state: 'detached' })
    await page.getByLabel('Search: Tasks').fill('AWAY')
    await card(other).waitFor()
    await leave(page)
  })

  it('has the tasks of one space, and creates new ones there', async () => {
    const spaceId = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Shipyard' } })).body.id
    const [wanted, other] = [await create({ title: 'Build a ship', spaceId }), await create({ title: 'Elsewhere' })]
    const { page } = await visit(browser, owner, '/app/tasks')
    const card = (id: string) => page.locator(`[data-task="${id}"]`)
    await card(other).waitFor()
    await page.getByRole('combobox', { name: 'Space' }).fill('ship')
    await page.getByRole('option', { name: 'Shipyard' }).click()
    await card(other).waitFor({ state: 'detached' })
    await card(wanted).waitFor()
    await page.reload()
    await page.getByRole('button', { name: 'New task' }).click()
    await page.getByLabel('Title').fill('Launch it')
    const dialog = page.getByRole('dialog')
    await expect.poll(() => dialog.getByRole('combobox', { name: 'Space' }).inputValue()).toBe('Shipyard')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('button', { name: 'Launch it', exact: true }).waitFor()
    const { tasks } = (await request(server, 'GET', `/api/v1/tasks?spaceId=${spaceId}`)).body
    expect(tasks.map(({ title }: { title: string }) => title).sort()).toEqual(['Build a ship', 'Launch it'])
    await leave(page)
  })

  it('moves a card by the keyboard alone', async () => {
    const id = await create({ title: 'Move me' })
    const { page } = await visit(browser, owner, '/app/tasks')
    await page.getByRole('button', { name: 'Actions for Move me' }).focus()
    await page.keyboard.press('Enter')
    // The menu is visible a moment before it has the focus.
    await page.getByRole('menuitem', { name: 'In progress' }).and(page.locator(':focus')).waitFor()
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('ArrowUp')
    await page.keyboard.press('Enter')
    await expect.poll(() => statusOf(id)).toBe('in_progress')
    const menu = page.locator('[data-status=in_progress]').getByRole('button', { name: 'Actions for Move me' })
    await menu.and(page.locator(':focus')).waitFor()
    await leave(page)
  })

  it('keeps each of several cards in its new column on a slow network', async () => {
    const ids = [await create({ title: 'Early' }), await create({ title: 'Late' })]
    const { page } = await visit(browser, owner, '/app/tasks')
    const column = page.locator('[data-status=in_progress]')
    const release = await holdBack(page, '**/trpc/tasks.update')
    for (const title of ['Early', 'Late']) {
      await page.getByRole('button', { name: `Actions for ${title}` }).click()
      await page.getByRole('menuitem', { name: 'In progress' }).click()
      await column.getByText(title).waitFor()
    }
    expect(await column.getByText('Early').count()).toBe(1)
    await release()
    for (const id of ids) await expect.poll(() => statusOf(id)).toBe('in_progress')
    await leave(page)
  })

  it('keeps a dialog that is opened before the answer to the one before it arrives', async () => {
    const { page } = await visit(browser, owner, '/app/tasks')
    const title = page.getByRole('dialog').getByLabel('Title')
    const release = await holdBack(page, '**/trpc/tasks.create')
    await page.getByRole('button', { name: 'New task' }).click()
    await title.fill('Slow')
    await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
    page.once('dialog', (question) => void question.accept())
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('button', { name: 'New task' }).click()
    await title.fill('The next one')
    await release()
    await page.locator('article').filter({ hasText: 'Slow' }).waitFor()
    expect(await title.inputValue()).toBe('The next one')
    page.once('dialog', (question) => void question.accept())
    await leave(page)
  })

  it('locks the fields of a dialog while it is saved, and keeps the focus if that fails', async () => {
    const { page } = await visit(browser, owner, '/app/tasks')
    const title = page.getByRole('dialog').getByLabel('Title')
    const gate = Promise.withResolvers<void>()
    await page.route('**/trpc/tasks.create', (route) => gate.promise.then(() => route.abort()))
    await page.getByRole('button', { name: 'New task' }).click()
    await title.fill('Typed')
    await title.press('Enter')
    await title.and(page.locator(':disabled')).waitFor()
    gate.resolve()
    await title.and(page.locator(':enabled:focus')).waitFor()
    page.once('dialog', (question) => void question.accept())
    await page.unrouteAll()
    await leave(page)
  })

  it('keeps the focus of a keyboard in its column when the last card there is deleted', async () => {
    const id = await create({ title: 'Delete me' })
    await request(server, 'PATCH', `/api/v1/tasks/${id}`, { body: { status: 'cancelled' } })
    const { page } = await visit(browser, owner, '/app/tasks')
    await page.getByRole('button', { name: 'Actions for Delete me' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('menuitem').and(page.locator(':focus')).waitFor()
    await page.keyboard.press('End')
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').getByRole('button', { name: 'Delete the task' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('group', { name: 'Cancelled' }).and(page.locator(':focus')).waitFor()
    await page.getByText('Delete me').waitFor({ state: 'detached' })
    await leave(page)
  })

  it('shows a message while it is read or cannot be seen, and then for its whole time', async () => {
    const id = await create({ title: 'Read me' })
    const { page } = await visit(browser, owner, '/app/tasks')
    const message = page.getByText('Read me: In progress')
    const close = page.getByRole('button', { name: 'Close' })
    await page.locator(`[data-task="${id}"]`).waitFor()
    await page.clock.install()
    await page.clock.pauseAt(Date.now() + 60_000)
    const later = async (seconds: number) => {
      await page.clock.runFor(seconds * 1_000)
      return message.count()
    }
    await page.getByRole('button', { name: 'Actions for Read me' }).click()
    await page.getByRole('menuitem', { name: 'In progress' }).click()
    await expect.poll(() => later(0.01)).toBe(1)
    await message.hover()
    expect(await later(60)).toBe(1)
    await page.mouse.move(0, 700)
    expect(await later(2)).toBe(1)
    await close.focus()
    expect(await later(60)).toBe(1)
    await close.blur()
    await setHidden(page, true)
    expect(await later(60)).toBe(1)
    await setHidden(page, false)
    expect(await later(2)).toBe(1)
    expect(await later(2)).toBe(0)
    await page.context().close()
  })

  it('writes a task once, assigns it to an agent, runs it, and shows its result in place', async () => {
    await request(server, 'POST', '/api/v1/agents', { body: { name: 'Worker', systemPrompt: 'x' } })
    const body = { name: 'Gone', systemPrompt: 'x' }
    const { id: gone } = (await request(server, 'POST', '/api/v1/agents', { body })).body
    await create({ title: 'Left behind', assignTo: gone })
    await request(server, 'DELETE', `/api/v1/agents/${gone}`)
    const { page } = await visit(browser, owner, '/app/tasks')
    await page
      .locator('article')
      .filter({ hasText: 'Left behind' })
      .getByText('Former member or private agent')
      .waitFor()
    await page.getByRole('button', { name: 'Left behind', exact: true }).click()
    const assignee = page.getByRole('dialog').getByLabel('Assigned to')
    await expect.poll(() => assignee.inputValue()).toBe('Former member or private agent')
    expect(await page.getByRole('button', { name: 'Run the agent' }).count()).toBe(0)
    // A text that another person writes meanwhile stays.
    const path = `/api/v1/tasks/${new URL(page.url()).searchParams.get('task')}`
    await request(server, 'PATCH', path, { body: { title: 'Left for good' } })
    await page.getByRole('dialog').getByLabel('Priority').selectOption({ label: 'High' })
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
    await assignee.waitFor({ state: 'detached' })
    expect((await request(server, 'GET', path)).body.task).toMatchObject({
      title: 'Left for good',
      priority: 'high',
      assignedTo: gone,
    })
    await page.getByRole('button', { name: 'Left for good', exact: true }).click()
    await assignee.waitFor()
    await page.goBack()
    await assignee.waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'New task' }).click()
    await page.getByLabel('Title').fill('Say hello')
    await assignee.fill('work')
    await page.getByRole('option', { name: 'Worker' }).click()
    await expect.poll(() => assignee.inputValue()).toBe('Worker')
    const createTwice = () => {
      const button = [...document.querySelectorAll('button')].find(({ textContent }) => textContent === 'Create')
      button?.click()
      button?.click()
    }
    await page.evaluate(`(${createTwice})()`)
    await page.getByRole('button', { name: 'Say hello', exact: true }).click()
    const { tasks } = (await request(server, 'GET', '/api/v1/tasks')).body
    expect(tasks.filter(({ title }: { title: string }) => title === 'Say hello')).toHaveLength(1)
    await page.getByRole('button', { name: 'Run the agent' }).click()
    await page.getByRole('region', { name: 'Result' }).getByText('offline model').waitFor()
    await page.getByText(/^Created by (?!…).+, \d+ \w+ \d{4}/).waitFor()
    await leave(page)
  })

  it('explains the failure of a task by the code of its run', async () => {
    const keyless = { name: 'Keyless', systemPrompt: 'x', model: 'anthropic/none' }
    const { id: agentId } = (await request(server, 'POST', '/api/v1/agents', { body: keyless })).body
    const { id } = (await request(server, 'POST', '/api/v1/tasks', { body: { title: 'Fail', assignTo: agentId } })).body
    await request(server, 'POST', `/api/v1/tasks/${id}/execute`, { body: {} })
    const { page } = await visit(browser, owner, `/app/tasks?task=${id}`)
    const alert = page.getByRole('dialog').getByRole('alert')
    await alert.getByText('The model does not exist, or its provider has no key here.').waitFor()
    await alert.getByRole('link', { name: 'Look at the run' }).click()
    await page.waitForURL('**/app/runs/*')
    await leave(page)
  })
})

import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Door, hasBrowser, holdBack, launch, leave, ownerOf, visit } from '../support/browser.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

/** Lets the server make a change, once, whose answer does not arrive. */
const loseAnswer = (page: Page, procedure: string): Promise<unknown> =>
  page.route(`**/trpc/${procedure}**`, (route) => route.fetch().then(() => route.abort()), { times: 1 })

describe.skipIf(!hasBrowser)('changes of the console', () => {
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

  const api = async (method: string, path: string, body?: object) =>
    (await request(server, method, `/api/v1/${path}`, { ...(body && { body }) })).body

  /** Clicks a button until the server has answered, the first answer being lost. */
  async function clickTwice(page: Page, procedure: string, name: string): Promise<void> {
    await loseAnswer(page, procedure)
    const button = page.getByRole('button', { name, exact: true }).last()
    await button.click()
    await page.getByText('The server cannot be reached').first().waitFor()
    const again = page.waitForResponse(`**/trpc/${procedure}**`)
    await button.click()
    expect((await again).headers()['idempotent-replayed']).toBe('true')
  }

  it('create one agent, although the first answer is lost and the person clicks again', async () => {
    const { page } = await visit(browser, owner, '/app/agents/new')
    await page.getByLabel('Name', { exact: true }).fill('Only one')
    await page.getByLabel('System prompt').fill('You help.')
    await clickTwice(page, 'agents.create', 'Create')
    await page.getByRole('heading', { name: 'Only one' }).waitFor()
    const { agents } = await api('GET', 'agents?search=Only')
    expect(agents).toHaveLength(1)
    await leave(page)
  })

  it('create another task for a form that was changed after a lost answer, or opened again', async () => {
    const { page } = await visit(browser, owner, '/app/tasks')
    const form = page.getByRole('dialog')
    const card = (title: string) => page.locator('article').filter({ hasText: title })
    const open = () => page.getByRole('button', { name: 'New task' }).click()
    const create = () => form.getByRole('button', { name: 'Create' }).click()
    await open()
    await form.getByLabel('Title').fill('First')
    await loseAnswer(page, 'tasks.create')
    await create()
    await page.getByText('The server cannot be reached').first().waitFor()
    await form.getByLabel('Title').fill('Second')
    await create()
    await form.waitFor({ state: 'detached' })
    for (const title of ['First', 'Second']) await card(title).waitFor()
    await open()
    await form.getByLabel('Title').fill('Second')
    await create()
    await form.waitFor({ state: 'detached' })
    await expect.poll(() => card('Second').count()).toBe(2)
    await leave(page)
  })

  it('run again once, although the first answer is lost', async () => {
    const { id } = await api('POST', 'agents', { name: 'Ada', systemPrompt: 'You help.' })
    const { executionId } = await api('POST', `agents/${id}/execute`, { message: 'Twice, please' })
    const { page } = await visit(browser, owner, `/app/runs/${executionId}`)
    await clickTwice(page, 'executions.rerun', 'Run again')
    await page.waitForURL((url) => !url.pathname.endsWith(executionId))
    const { executions } = await api('GET', `executions?agentId=${id}`)
    expect(executions).toHaveLength(2)
    await leave(page)
  })

  it('create one webhook, and say that its secret was in the answer that was lost', async () => {
    const { page } = await visit(browser, owner, '/app/settings/webhooks')
    await page.getByRole('button', { name: 'New webhook' }).first().click()
    await page.getByRole('dialog').getByLabel('Address').fill('https://hooks.invalid/')
    await clickTwice(page, 'webhooks.create', 'Create')
    await page.getByRole('dialog', { name: 'The signing secret is lost' }).waitFor()
    expect((await api('GET', 'webhooks')).webhooks).toHaveLength(1)
    await leave(page)
  })

  it('replace no change of another person although the page is left before the save has looked', async () => {
    const { id } = await api('POST', 'spaces', { name: 'Lab' })
    const { page } = await visit(browser, owner, `/app/spaces/${id}?tab=instructions`)
    const box = page.getByRole('textbox', { name: 'Instructions' })
    await box.fill('Mine')
    await api('PATCH', `spaces/${id}`, { instructions: 'Theirs' })
    const reads = /\/trpc\/[^?]*spaces\.get/
    const release = await holdBack(page, reads)
    const asked = page.waitForRequest(reads)
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await asked
    page.once('dialog', (question) => void question.accept())
    await page.getByRole('link', { name: 'Tasks', exact: true }).click()
    await page.getByRole('heading', { name: 'Tasks', level: 1 }).waitFor()
    await release()
    await page.getByText('Not saved. Another person or an agent has changed this').waitFor()
    expect((await api('GET', `spaces/${id}`)).space.instructions).toBe('Theirs')
    await leave(page)
  })

  it('ask before a change of another person to a value that was refused here is replaced', async () => {
    await server.member({ organization: 'Elsewhere' })
    const { db } = server.service.deps
    const taken = await db.organization.findFirstOrThrow({ where: { name: 'Elsewhere' } })
    const { id, slug } = (await api('GET', 'organizations')).organizations[0]
    const { page } = await visit(browser, owner, '/app/settings/organization')
    const name = page.getByRole('main').getByLabel('Name', { exact: true })
    const shortName = page.getByLabel('Short name')
    const save = page.getByRole('button', { name: 'Save', exact: true }).first()
    await name.fill('Both')
    await shortName.fill(taken.slug)
    const refused = page.waitForResponse('**/trpc/organizations.update')
    await save.click()
    expect((await refused).status()).toBe(409)
    await name.fill('Mine')
    await shortName.fill(slug)
    await api('PATCH', `organizations/${id}`, { name: 'Both' })
    await save.and(page.locator(':enabled')).click()
    await page.getByRole('group', { name: 'Their version and yours' }).waitFor()
    expect((await api('GET', `organizations/${id}`)).organization.name).toBe('Both')
    page.once('dialog', (question) => void question.accept())
    await leave(page)
  })
})

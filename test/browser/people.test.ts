import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Browser, Request } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { composer, type Door, hasBrowser, holdBack, launch, leave, ownerOf, visit } from '../support/browser.ts'
import { setPassword, signedIn } from '../support/browser-session.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

describe.skipIf(!hasBrowser)('the people of an organization in the console', () => {
  let browser: Browser
  let server: TestServer
  let owner: Door
  beforeAll(async () => {
    browser = await launch()
    server = await startServer({ ALLOW_PRIVATE_NETWORK: 'true' })
    owner = await ownerOf(server)
  })
  afterAll(async () => {
    await browser?.close()
    await server?.[Symbol.asyncDispose]()
  })

  it('lets an admin invite a person, who accepts in another browser, and change the role', async () => {
    const { page, complaints } = await visit(browser, owner, '/app/settings/members')
    await page.getByRole('button', { name: 'Invite a person' }).click()
    await page.getByLabel('E-mail').fill('grace@example.com')
    await page.getByLabel('Role', { exact: true }).selectOption({ label: 'Admin' })
    await page.getByRole('button', { name: 'Invite', exact: true }).click()
    const { origin, pathname, hash } = new URL((await page.getByRole('dialog').locator('pre').textContent()) ?? '')
    expect(origin).toBe(server.url)
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click()
    await page.getByText('grace@example.com').waitFor()
    expect(await page.content()).not.toContain(hash)

    const guest = await visit(browser, { url: server.url, cookie: '' }, pathname + hash)
    await guest.page.getByLabel('Your name').fill('Grace Hopper')
    await guest.page.getByLabel('Choose a password').fill('a long sentence of hers')
    await guest.page.getByRole('button', { name: 'Accept the invitation' }).click()
    await composer(guest.page).waitFor()
    await guest.page.goto('/app/settings/members')
    await guest.page.getByLabel('Role: Grace Hopper').waitFor()
    expect(guest.complaints).toEqual([])
    await leave(guest.page)

    await page.reload()
    const role = page.getByLabel('Role: Grace Hopper')
    const change = page.getByRole('dialog', { name: 'Change the role of Grace Hopper to Member?' })
    for (const [button, expected] of [
      ['Cancel', 'admin'],
      ['Change the role', 'member'],
    ] as const) {
      await role.selectOption('member')
      await change.getByRole('button', { name: button }).click()
      await change.waitFor({ state: 'detached' })
      expect(await role.inputValue()).toBe(expected)
    }
    await page.getByText('No invitation is open.').waitFor()
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('shows buttons to an admin that it hides from a member, and those of owners to neither', async () => {
    const create = async (path: string, body: object) =>
      (await request(server, 'POST', `/api/v1/${path}`, { body })).body.id
    const agentId = await create('agents', { name: 'Shared', systemPrompt: 'x', visibility: 'organization' })
    const spaceId = await create('spaces', { name: 'Common', visibility: 'organization' })
    const missionId = await create('missions', { title: 'Daily', goal: 'x', agentId })
    const skillId = await create('skills', { name: 'style', description: 'x', prompt: 'x' })
    const url = 'https://mcp.example.com/mcp'
    const mcpId = await create('mcps', { name: 'Tracker', mcpType: 'custom', url, transport: 'streamable-http' })
    const buttons: Record<string, readonly string[]> = {
      [`agents/${agentId}`]: ['Save', 'More actions'],
      [`spaces/${spaceId}`]: ['Upload', 'New file', 'More actions'],
      [`missions/${missionId}`]: ['Run now', 'More actions'],
      [`skills?skill=${skillId}`]: ['Save', 'Delete the skill'],
      [`mcps?mcp=${mcpId}`]: ['Save', 'Delete the server'],
      'settings/organization': ['Save'],
      'settings/members': ['Invite a person'],
      'settings/service-accounts': ['New service account'],
      'settings/providers': ['Add a provider'],
      'settings/secrets': ['Save'],
      'settings/webhooks': ['New webhook'],
    }
    const { profile } = (await request(server, 'GET', '/api/v1/profile')).body
    for (const role of ['member', 'admin'] as const) {
      const { userId } = await server.member({ role })
      const { secret } = await signedIn(server, userId)
      const { page, complaints } = await visit(browser, { url: server.url, cookie: secret })
      for (const [path, names] of Object.entries(buttons)) {
        await page.evaluate((to) => history.pushState({}, '', to), `/app/${path}`)
        await page.locator(`main[data-shown="/${path}"] h1`).first().waitFor({ state: 'attached' })
        await expect.poll(() => page.locator('.animate-pulse').count()).toBe(0)
        for (const name of names) {
          const button = page.getByRole('button', { name, exact: true })
          if (role === 'admin') await button.waitFor()
          expect([role, path, name, await button.count()]).toEqual([role, path, name, role === 'admin' ? 1 : 0])
        }
        // A link of an admin to a tab that a member has not leads to the first one.
        if (path.startsWith('spaces/') && role === 'member') {
          await page.evaluate((to) => history.pushState({}, '', to), `/app/${path}?tab=secrets`)
          await page.locator('main[data-shown$=secrets]').waitFor()
          expect(await page.locator('[role=tab][aria-selected=true]').allTextContents()).toEqual(['Files'])
        }
        if (path === 'settings/members') {
          const removing = page.getByRole('button', { name: `Remove ${profile.name}`, exact: true })
          expect([role, await removing.count()]).toEqual([role, 0])
        }
      }
      expect(complaints).toEqual([])
      await leave(page)
    }
  })

  it('lets two tabs show two organizations, one by a former slug', async () => {
    const email = 'both@example.com'
    const { userId } = await server.member({ email, organization: 'Left' })
    const { organizationId } = await server.member({ email, organization: 'Right' })
    // A link of before the organization had its present slug.
    const endsAt = new Date(Date.now() + 60 * 60_000)
    await server.service.deps.db.formerSlug.create({ data: { slug: 'rite', organizationId, endsAt } })
    const { secret } = await signedIn(server, userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret }, '/app?organization=left')
    await page.getByRole('button', { name: 'Organization: Left' }).waitFor()
    const tab = await page.context().newPage()
    await tab.goto('/app/agents/new?organization=rite')
    await tab.getByRole('button', { name: 'Organization: Right' }).waitFor()
    await page.getByRole('link', { name: 'Agents', exact: true }).click()
    await page.getByRole('link', { name: 'New agent' }).first().click()
    await page.getByLabel('Name', { exact: true }).fill('Leftie')
    await page.getByLabel('System prompt').fill('x')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('button', { name: 'Save' }).waitFor()
    const { organization } = await server.service.deps.db.agent.findFirstOrThrow({
      where: { name: 'Leftie' },
      select: { organization: { select: { name: true } } },
    })
    expect(organization.name).toBe('Left')
    await leave(page)
  })

  it('keeps an unsaved form when the session ends, and explains a page without an organization', async () => {
    const member = await server.member({ organization: 'Short' })
    const { id, secret, headers } = await signedIn(server, member.userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret }, '/app/agents/new')
    await page.getByLabel('Name', { exact: true }).fill('Kept')
    await page.getByLabel('System prompt').fill('x')
    await fetch(`${server.url}/api/auth/sessions/${id}`, { method: 'DELETE', headers })
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByText('Your session has ended.').first().waitFor()
    expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('Kept')

    const again = await signedIn(server, member.userId)
    await page.context().addCookies([{ name: 'muster', value: again.secret, url: server.url }])
    const membership = `/api/v1/organizations/${member.organizationId}/members/me`
    await fetch(server.url + membership, { method: 'DELETE', headers: again.headers })
    // The page may have noticed by itself before, and then has no button.
    const create = () => [...document.querySelectorAll('button')].find((button) => button.textContent === 'Create')
    await page.evaluate(`(${create})()?.click()`).catch(() => {})
    await page.getByText('You belong to no organization').waitFor()
    const logout = '**/api/auth/logout'
    await page.route(logout, (route) => route.abort())
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByText('The server cannot be reached').waitFor()
    await page.unroute(logout)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.waitForURL('**/app/sign-in')
    await leave(page)
  })

  it('stays at a page with input when the session ends, until the input is saved', async () => {
    const member = await server.member({ organization: 'Inline' })
    const first = await signedIn(server, member.userId)
    const { page } = await visit(browser, { url: server.url, cookie: first.secret }, '/app/settings/profile')
    const end = ({ id, headers }: typeof first) =>
      fetch(`${server.url}/api/auth/sessions/${id}`, { method: 'DELETE', headers })
    // Reads the session again, as a page does that is shown again.
    const show = () => page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    const name = page.getByLabel('Name', { exact: true })
    const save = page.getByRole('button', { name: 'Save', exact: true }).first()
    await name.fill('Ada Lovelace')
    await end(first)
    await show()
    await page.getByText('Your session has ended.').first().waitFor()
    expect(await name.inputValue()).toBe('Ada Lovelace')
    const second = await signedIn(server, member.userId)
    await page.context().addCookies([{ name: 'muster', value: second.secret, url: server.url }])
    // The button is also disabled while the name is saved. The page has no input once it has read the saved one.
    let isSaved = false
    const saved = page.waitForResponse((response) => {
      isSaved ||= response.url().includes('profile.update')
      return isSaved && response.url().includes('profile.get')
    })
    await Promise.all([saved, save.click()])
    await expect.poll(() => save.isDisabled()).toBe(true)
    await end(second)
    await show()
    await page.waitForURL('**/app/sign-in?*')
    await leave(page)
  })

  it('finds one of many members, and shows the others part by part', async () => {
    const organization = 'Crowd'
    const { userId } = await server.member({ organization, role: 'owner', email: 'needle@example.com' })
    for (let index = 0; index < 120; index++)
      await server.member({ organization, email: `hay-${String(index).padStart(3, '0')}@example.com` })
    const { secret } = await signedIn(server, userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret }, '/app/settings/members')
    const rows = page.getByRole('combobox', { name: /^Role: / })
    await expect.poll(() => rows.count()).toBe(100)
    await page.getByRole('button', { name: 'Show more' }).click()
    await expect.poll(() => rows.count()).toBe(121)
    await page.getByLabel('Search: Members').fill('Needle')
    await expect.poll(() => rows.count()).toBe(1)
    await page.waitForURL('**/members?search=Needle')
    await page.getByLabel('Search: Members').fill('Nobody')
    await page.getByText('Nothing fits').waitFor()
    await leave(page)
  })

  it('keeps a message that an ended session refused, and begins again for another person', async () => {
    const member = await server.member({ organization: 'Tabs' })
    const agent = { name: 'Ada', systemPrompt: 'x', visibility: 'organization' }
    const { token } = member
    const { id: agentId } = (await request(server, 'POST', '/api/v1/agents', { token, body: agent })).body
    const { chat } = (await request(server, 'POST', '/api/v1/chats', { token, body: { agentId } })).body
    const { id, secret, headers } = await signedIn(server, member.userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret })
    await composer(page).fill('For nobody else')
    await page.goto(`/app/chats/${chat.id}`)
    // The message is refused first, and then everything else: a refused query of the page would lead to the sign-in.
    let isOver = false
    const others = /\/trpc\/(?!chats\.send)/
    await page.route(others, (route) => {
      const isStream = /\/trpc\/\w+\.(events|changes)/.test(route.request().url())
      return isStream || isOver ? route.abort() : route.continue()
    })
    const pending = new Set<Request>()
    page.on('request', (each) => pending.add(each))
    page.on('requestfinished', (each) => pending.delete(each))
    page.on('requestfailed', (each) => pending.delete(each))
    await page.reload()
    await composer(page).fill('A long thought')
    await page.getByText('Write to Ada').first().waitFor()
    isOver = true
    await expect.poll(() => pending.size).toBe(0)
    await fetch(`${server.url}/api/auth/sessions/${id}`, { method: 'DELETE', headers })
    await composer(page).press('Enter')
    await page.getByText('Not sent. Your session has ended.').waitFor()
    await page.unroute(others)
    await page.getByText('Your session has ended. Sign in in another tab').first().waitFor()
    expect(await page.getByText('A long thought').count()).toBe(1)

    const other = await server.member({ organization: 'Tabs', email: 'other@example.com' })
    const again = await signedIn(server, other.userId)
    await page.context().addCookies([{ name: 'muster', value: again.secret, url: server.url }])
    const tab = await page.context().newPage()
    await tab.goto('/app')
    const menu = /^other: profile/
    await tab.getByRole('button', { name: menu }).waitFor()
    await page.getByRole('button', { name: menu }).waitFor()
    expect(await composer(page).inputValue()).toBe('')
    await leave(page)
  })

  it('gives an unsent message with its file back after the sign-in, and keeps an edited message', async () => {
    const email = 'slow@example.com'
    const { token, userId } = await server.member({ organization: 'Writers', email })
    await setPassword(server, userId, 'eleven blue kettles sing')
    const agent = { name: 'Ada', systemPrompt: 'x' }
    const { id: agentId } = (await request(server, 'POST', '/api/v1/agents', { token, body: agent })).body
    const asked = { token, body: { message: 'First' } }
    const { chatId } = (await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, asked)).body
    const { id, secret, headers } = await signedIn(server, userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret }, `/app/chats/${chatId}`)
    await composer(page).fill('A long thought')
    const file = { name: 'plan.md', mimeType: 'text/markdown', buffer: Buffer.from('# Plan') }
    const uploaded = page.waitForResponse('**/api/v1/media')
    await page.locator('input[type=file]').setInputFiles(file)
    await uploaded
    await page.getByLabel('Uploading').waitFor({ state: 'detached' })
    await fetch(`${server.url}/api/auth/sessions/${id}`, { method: 'DELETE', headers })
    await page.reload()
    await page.getByLabel('E-mail address').fill(email)
    await page.getByLabel('Password', { exact: true }).fill('eleven blue kettles sing')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await expect.poll(() => composer(page).inputValue()).toBe('A long thought')
    await page.getByText('plan.md').waitFor()

    await page.locator('[data-turn=user]').hover()
    await page.getByRole('button', { name: 'Edit the message' }).click()
    await page.getByLabel('Edit the message').fill('Changed')
    await server.service.deps.db.browserSession.deleteMany({ where: { userId } })
    // The tab comes back to the front, and reads its session.
    await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')))
    await page.getByText('Your session has ended.').first().waitFor()
    expect(await page.getByLabel('Edit the message').inputValue()).toBe('Changed')
    await leave(page)
  })

  it('refuses an invitation that was withdrawn', async () => {
    const { page } = await visit(browser, owner, '/app/settings/members')
    await page.getByRole('button', { name: 'Invite a person' }).click()
    await page.getByLabel('E-mail').fill('eve@example.com')
    await page.getByRole('button', { name: 'Invite', exact: true }).click()
    const { pathname, hash } = new URL((await page.getByRole('dialog').locator('pre').textContent()) ?? '')
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click()
    await page.getByRole('button', { name: 'Withdraw: eve@example.com' }).click()
    // Another admin is faster.
    const { organization } = (await request(server, 'GET', '/api/v1/profile')).body.profile
    const place = `/api/v1/organizations/${organization.id}/invitations`
    const { invitations } = (await request(server, 'GET', place)).body
    await request(server, 'DELETE', `${place}/${invitations[0].id}`)
    await page.getByRole('button', { name: 'Withdraw', exact: true }).click()
    await page.getByText('No invitation is open.').waitFor()
    await page.getByRole('button', { name: 'Cancel' }).press('Enter')
    // The button that asked is gone.
    await page.locator('main:focus-within, main:focus').waitFor()
    const guest = await visit(browser, { url: server.url, cookie: '' }, pathname + hash)
    await guest.page.getByRole('alert').filter({ hasText: /\w/ }).waitFor()
    expect(await guest.page.getByRole('button', { name: 'Accept the invitation' }).isVisible()).toBe(false)
    await leave(page)
    await leave(guest.page)
  })

  it('lets an owner take over what a former member owns', async () => {
    const joan = await server.member()
    const agent = { name: 'Left behind', systemPrompt: 'You help.', visibility: 'private' }
    await request(server, 'POST', '/api/v1/agents', { token: joan.token, body: agent })
    const organization = (await request(server, 'GET', '/api/v1/organizations')).body.organizations[0].id
    await request(server, 'DELETE', `/api/v1/organizations/${organization}/members/${joan.userId}`)
    const { page, complaints } = await visit(browser, owner, '/app/settings/members')
    await page.getByRole('button', { name: 'Take over' }).click()
    await page.getByRole('dialog').getByText('Left behind').first().waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Take over' }).click()
    await expect.poll(() => page.getByText('Former members').count()).toBe(0)
    const { agents } = (await request(server, 'GET', '/api/v1/agents?owner=me')).body
    expect(agents.map(({ name }: { name: string }) => name)).toContain('Left behind')
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('shows the hosts of a secret, replaces them with its value, and deletes it', async () => {
    const { page, complaints } = await visit(browser, owner, '/app/settings/secrets')
    await page.getByLabel('Name').fill('TRACKER')
    await page.getByLabel('Value').fill('one')
    await page.getByLabel('Hosts').fill('api.example.com, two.example.com')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Sent to api.example.com, two.example.com').waitFor()
    // On a slow network a person begins the next one meanwhile.
    const releaseSecret = await holdBack(page, '**/trpc/secrets.setEnv')
    await page.getByLabel('Name').fill('MAP')
    await page.getByLabel('Value').fill('x')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByLabel('Name').fill('CHART')
    await releaseSecret()
    await page.getByRole('button', { name: 'Delete MAP' }).waitFor()
    expect(await page.getByLabel('Name').inputValue()).toBe('CHART')
    await page.getByLabel('Name').fill('')
    const releaseDeletion = await holdBack(page, '**/trpc/secrets.deleteOneEnv')
    const question = page.getByRole('dialog')
    await page.getByRole('button', { name: 'Delete MAP' }).click()
    await question.getByRole('button', { name: 'Delete' }).click()
    await question.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('button', { name: 'Delete TRACKER' }).click()
    await releaseDeletion()
    await page.getByRole('button', { name: 'Delete MAP', includeHidden: true }).waitFor({ state: 'detached' })
    await question.getByText('TRACKER').first().waitFor()
    await question.getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('button', { name: 'Replace TRACKER' }).click()
    await page.getByLabel('Value').fill('two')
    await page.getByLabel('Hosts').fill('')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Sent only to MCP servers').waitFor()
    await page.getByRole('button', { name: 'Delete TRACKER' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
    await page.getByText('No secrets yet.').waitFor()
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('replaces the key of a provider whose check failed', async () => {
    const orgId = (await request(server, 'GET', '/api/v1/organizations')).body.organizations[0].id
    const body = { apiKey: 'old', baseUrl: 'http://127.0.0.1:9/v1' }
    await request(server, 'PUT', `/api/v1/organizations/${orgId}/providers/compatible:local`, { body })
    const { page } = await visit(browser, owner, '/app/settings/providers')
    await page.getByText('Check failed').waitFor()
    await page.getByText(/^Set by You, /).waitFor()
    await page.getByRole('button', { name: 'Change compatible:local' }).click()
    await page.getByLabel('API key').fill('new')
    expect(await page.getByLabel('Base address').inputValue()).toBe(body.baseUrl)
    await page.getByRole('button', { name: 'Save' }).click()
    const changes = async () => (await request(server, 'GET', '/api/v1/audit?action=provider.update')).body.events
    await expect.poll(changes).toHaveLength(2)
    await page.getByRole('button', { name: 'Add a provider' }).click()
    const kind = page.getByLabel('Provider', { exact: true })
    await kind.selectOption('custom')
    await page.getByLabel('Name', { exact: true }).fill('local')
    await page.getByText('Your organization has a provider of this name.').waitFor()
    // A provider on this computer needs no key.
    await kind.selectOption('openai')
    await page.getByLabel('Base address').fill(body.baseUrl)
    expect(await page.getByRole('button', { name: 'Save' }).isEnabled()).toBe(false)
    await kind.selectOption('compatible')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('button', { name: 'Change compatible', exact: true }).waitFor()
    await request(server, 'DELETE', `/api/v1/organizations/${orgId}/providers/compatible`)
    await leave(page)
  })

  it("keeps the schema of an agent's answers, joins changes of two people, restores a version", async () => {
    const { page, complaints } = await visit(browser, owner, '/app/agents/new')
    await page.getByLabel('Name', { exact: true }).fill('Clerk')
    await page.getByLabel('System prompt').fill('You answer in JSON.')
    await page.getByLabel('Long conversations').selectOption({ label: 'Have the model summarize the oldest turns' })
    await page.getByText('Form of the answers').click()
    const schema = page.getByLabel('JSON Schema of the answers')
    const save = page.getByRole('button', { name: 'Create' })
    await schema.fill('{"type": ')
    await page.getByText('This is not JSON').waitFor()
    expect(await save.isDisabled()).toBe(true)
    await schema.fill('{"type": "nothing"}')
    await save.click()
    await page.getByText('It must be a JSON Schema').waitFor()
    expect(await schema.getAttribute('aria-invalid')).toBe('true')
    await schema.fill('{"type": "object"}')
    await expect.poll(() => schema.getAttribute('aria-invalid')).toBeNull()
    await save.click()
    // The page of the agent replaces that of the new one.
    await page.getByRole('button', { name: 'Save' }).waitFor()
    const { agents } = (await request(server, 'GET', '/api/v1/agents?search=clerk')).body
    expect(agents).toMatchObject([{ history: 'summarize', output: { schema: { type: 'object' } } }])
    // Another person changes the agent meanwhile.
    const description = page.getByRole('textbox', { name: 'Description' })
    await description.fill('Mine')
    const path = `/api/v1/agents/${agents[0].id}`
    await request(server, 'PATCH', path, { body: { role: 'Theirs', description: 'Theirs' } })
    await page.getByRole('button', { name: 'Save' }).click()
    await expect.poll(() => page.getByLabel('Role').inputValue()).toBe('Theirs')
    expect(await description.inputValue()).toBe('Mine')
    const versions = page.getByRole('group', { name: 'Their version and yours' })
    await versions.getByText('Theirs').waitFor()
    expect(await versions.getByRole('table').count()).toBe(1)
    await page.getByRole('button', { name: 'Take their version' }).click()
    await expect.poll(() => description.inputValue()).toBe('Theirs')
    await description.fill('Mine')
    await page.getByRole('button', { name: 'Save' }).click()
    await expect
      .poll(async () => (await request(server, 'GET', path)).body.agent)
      .toMatchObject({ role: 'Theirs', description: 'Mine' })
    const unsaved = page.getByText('Unsaved changes', { exact: true })
    await unsaved.waitFor({ state: 'detached' })
    // The first version comes back, and an edit beside it stays one.
    await page.getByLabel('Tags').fill('one,two ')
    await page.getByRole('tab', { name: 'Versions' }).click()
    await page.getByLabel('Compare').selectOption({ index: 2 })
    await page.getByRole('button', { name: 'Use this version again' }).click()
    await expect
      .poll(async () => (await request(server, 'GET', path)).body.agent)
      .toMatchObject({ version: 4, role: 'Assistant', description: null, tags: [] })
    await page.getByRole('tab', { name: 'Edit' }).click()
    await expect.poll(() => page.getByLabel('Role').inputValue()).toBe('Assistant')
    expect(await description.inputValue()).toBe('')
    await page.getByRole('button', { name: 'Save' }).click()
    await expect.poll(() => page.getByLabel('Tags').inputValue()).toBe('one, two')
    await unsaved.waitFor({ state: 'detached' })
    await schema.fill('')
    expect(await schema.isVisible()).toBe(true)
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('points at permissions of tools that do not exist, and keeps those of all others', async () => {
    const permissions = [
      { tool: '*', mode: 'ask' },
      { tool: 'Bash', mode: 'deny' },
    ]
    const body = { name: 'Careful', systemPrompt: 'x', permissions }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body })).body
    const { page } = await visit(browser, owner, `/app/agents/${id}`)
    await page.getByText('There is no built-in tool of this name').waitFor()
    expect(await page.getByLabel('read_file').inputValue()).toBe('ask')
    await page.getByLabel('write_file').selectOption('allow')
    await page.getByRole('button', { name: 'Remove Bash' }).click()
    await page.getByRole('button', { name: 'Save' }).click()
    await expect
      .poll(async () => (await request(server, 'GET', `/api/v1/agents/${id}`)).body.agent.permissions)
      .toEqual([
        { tool: '*', mode: 'ask' },
        { tool: 'write_file', mode: 'allow' },
      ])
    await leave(page)
  })

  it('sets the modes of built-in tools in an organization and in a space', async () => {
    const { id: spaceId } = (await request(server, 'POST', '/api/v1/spaces', { body: { name: 'Strict' } })).body
    const orgId = (await request(server, 'GET', '/api/v1/organizations')).body.organizations[0].id
    const { page, complaints } = await visit(browser, owner, '/app/settings/policy')
    const choose = async (mode: string) => {
      await page.getByLabel('write_file').selectOption(mode)
      await page.getByRole('button', { name: 'Save' }).click()
    }
    const change = (path: string, body: object) => request(server, 'PATCH', `/api/v1/${path}`, { body })
    const other = [{ tool: 'web_fetch', mode: 'deny' }]
    const takeTheirs = async () => {
      await page.getByRole('group', { name: 'Their version and yours' }).getByText('web_fetch').waitFor()
      await page.getByRole('button', { name: 'Take their version' }).click()
      await expect.poll(() => page.getByLabel('web_fetch').inputValue()).toBe('deny')
      await page.getByLabel('web_fetch').selectOption('allow')
    }
    await page.getByLabel('write_file').waitFor()
    await change(`organizations/${orgId}/policy`, { builtInTools: other })
    await choose('ask')
    await takeTheirs()
    await choose('ask')
    await expect
      .poll(async () => (await request(server, 'GET', `/api/v1/organizations/${orgId}/policy`)).body.policy)
      .toMatchObject({ builtInTools: [{ tool: 'write_file', mode: 'ask' }] })
    // Each of two choices stays on a slow network.
    const release = await holdBack(page, '**/trpc/organizations.updatePolicy')
    const choices = { 'Built-in tools for agents of other organizations': 'all', 'Skills that are attached': 'latest' }
    for (const [label, value] of Object.entries(choices)) await page.getByLabel(label).selectOption(value)
    for (const [label, value] of Object.entries(choices))
      await expect.poll(() => page.getByLabel(label).inputValue()).toBe(value)
    await release()
    await expect
      .poll(async () => (await request(server, 'GET', `/api/v1/organizations/${orgId}/policy`)).body.policy)
      .toMatchObject({ foreignAgents: 'all', attachments: 'latest' })
    await page.goto(`/app/spaces/${spaceId}?tab=attached`)
    await page.getByLabel('write_file').waitFor()
    await change(`spaces/${spaceId}`, { permissions: other })
    await choose('deny')
    await takeTheirs()
    await choose('deny')
    await expect
      .poll(async () => (await request(server, 'GET', `/api/v1/spaces/${spaceId}`)).body.space.permissions)
      .toEqual([{ tool: 'write_file', mode: 'deny' }])
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('shows a key of a service account although its dialog was closed, and revokes it', async () => {
    const { page } = await visit(browser, owner, '/app/settings/service-accounts')
    await page.getByRole('button', { name: 'New service account' }).click()
    await page.getByLabel('Name').fill('Pipeline')
    await page.getByRole('button', { name: 'Create', exact: true }).click()
    await page.getByRole('button', { name: 'Keys' }).click()
    await page.getByRole('button', { name: 'New key' }).click()
    await page.getByLabel('Name').fill('Nightly')
    const release = await holdBack(page, '**/trpc/organizations.createServiceKey')
    await page.getByRole('button', { name: 'Create' }).click()
    // A person may give a slow network up, but the key is made.
    page.once('dialog', (question) => void question.accept())
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByText('No keys yet.').waitFor()
    await release()
    const token = await page.getByRole('dialog', { name: 'The key, shown only once' }).locator('pre').textContent()
    const ask = async () => (await request(server, 'GET', '/api/v1/agents', { token })).status
    expect(await ask()).toBe(200)
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click()
    await page.getByRole('button', { name: 'Revoke Nightly' }).click()
    await page.getByRole('button', { name: 'Revoke', exact: true }).click()
    await expect.poll(ask).toBe(401)
    await leave(page)
  })

  it('shows the secret of a webhook although its dialog was closed, and each delivery', async () => {
    const received: (string | undefined)[] = []
    const receiver = createServer((incoming, response) => {
      received.push(incoming.headers['webhook-id'] as string | undefined)
      response.writeHead(received.length === 1 ? 500 : 204).end()
    }).listen(0, '127.0.0.1')
    await new Promise((resolve) => receiver.once('listening', resolve))
    try {
      const { page, complaints } = await visit(browser, owner, '/app/settings/webhooks')
      await page.getByRole('button', { name: 'New webhook' }).click()
      await page.getByLabel('Address').fill(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`)
      await page.getByLabel('Description').fill('Our program')
      const release = await holdBack(page, '**/trpc/webhooks.create')
      await page.getByRole('button', { name: 'Create', exact: true }).click()
      page.once('dialog', (question) => void question.accept())
      await page.getByRole('button', { name: 'Cancel' }).click()
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      await release()
      const secret = page.getByRole('dialog', { name: 'The signing secret, shown only once' })
      expect(await secret.locator('pre').textContent()).toMatch(/^whsec_/)
      await secret.getByRole('button', { name: 'Close' }).last().click()
      await page.getByRole('button', { name: 'Actions for Our program' }).click()
      await page.getByRole('menuitem', { name: 'Send a test event' }).click()
      await page.getByText('1 attempt').click()
      await page.getByText('500').waitFor()
      await page.getByRole('button', { name: 'Send again' }).first().click()
      await page.getByRole('listitem').getByText('Delivered', { exact: true }).waitFor()
      expect(complaints).toEqual([])
      await leave(page)
    } finally {
      receiver.close()
    }
  })
})

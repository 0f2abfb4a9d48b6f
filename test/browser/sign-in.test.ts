import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hasBrowser, launch, leave, visit } from '../support/browser.ts'
import { signedIn } from '../support/browser-session.ts'
import { AUDIENCE, type Oidc, startOidc } from '../support/oidc.ts'
import { startServer, type TestServer } from '../support/server.ts'

describe.skipIf(!hasBrowser)('in a browser', () => {
  let browser: Browser
  let oidc: Oidc
  let server: TestServer
  beforeAll(async () => {
    oidc = await startOidc()
    server = await startServer({
      OIDC_ISSUER: oidc.issuer,
      OIDC_CLIENT_ID: AUDIENCE,
      OIDC_CLIENT_SECRET: 'secret',
      OIDC_NAME: 'Example & Co',
      OIDC_ALLOWED_DOMAINS: 'allowed.example',
    })
    browser = await launch()
  })
  afterAll(async () => {
    await browser?.close()
    await server[Symbol.asyncDispose]()
    await oidc[Symbol.asyncDispose]()
  })

  const arrive = (page: Page, path: string) => page.waitForURL((url) => url.pathname === path)
  const open = async (path: string) => {
    const { page, complaints } = await visit(browser, { url: server.url, cookie: '' }, path)
    expect(complaints).toEqual([])
    page.on('pageerror', (error) => expect.unreachable(String(error)))
    return page
  }

  /** Goes through the pages of oidc-provider. */
  async function passProvider(page: Page, login: string): Promise<void> {
    await page.getByPlaceholder('Enter any login').fill(login)
    await page.getByPlaceholder('and password').fill('x')
    await page.getByRole('button', { name: 'Sign-in' }).click()
    await page.getByRole('button', { name: 'Continue' }).click()
  }

  it('a person signs in with an identity provider and reaches the requested page', async () => {
    oidc.people.set('ada', { sub: 'ada', email: 'ada@allowed.example', email_verified: true })
    const page = await open('/app/account')
    await arrive(page, '/app/sign-in')
    await page.getByRole('link', { name: 'Sign in with Example & Co' }).click()
    await passProvider(page, 'ada')
    await arrive(page, '/app/account')
    await page.getByText('ada@allowed.example').waitFor()
    await page.getByText('By identity provider').waitFor()
    const cookies = await page.context().cookies(server.url)
    expect(cookies.filter(({ name }) => name.startsWith('muster'))).toMatchObject([
      { name: 'muster', httpOnly: true, sameSite: 'Lax' },
    ])
    await page.getByRole('button', { name: 'Sign out' }).click()
    await arrive(page, '/app/sign-in')
    await leave(page)
  })

  it('a person without an account, or one who cancels, reads the remedy', async () => {
    oidc.people.set('eve', { sub: 'eve', email: 'eve@elsewhere.example', email_verified: true })
    const page = await open('/app/sign-in')
    await page.getByRole('link', { name: 'Sign in with' }).click()
    await passProvider(page, 'eve')
    await page.getByRole('alert').getByText('Ask an admin of your organization to invite you').waitFor()
    expect(new URL(page.url()).pathname).toBe('/app/sign-in')
    await page.context().clearCookies()
    await page.getByRole('link', { name: 'Sign in with' }).click()
    await page.getByRole('link', { name: 'Cancel' }).click()
    await page.getByRole('alert').getByText('did not sign you in').waitFor()
    await leave(page)
  })

  it('an invited person joins by the identity provider', async () => {
    oidc.people.set('grace', { sub: 'grace', email: 'grace@elsewhere.example', email_verified: true })
    const { token, organizationId } = await server.member({ organization: 'Hosts', role: 'admin' })
    const response = await fetch(`${server.url}/api/v1/organizations/${organizationId}/invitations`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ email: 'grace@elsewhere.example', role: 'member' }),
    })
    const { url } = (await response.json()) as { url: string }
    const page = await open(`/app/accept#${url.split('#')[1]}`)
    await page.getByRole('link', { name: 'Sign in with Example & Co' }).click()
    await passProvider(page, 'grace')
    await arrive(page, '/app')
    await page.goto('/app/account')
    await page.getByText('Hosts (member)').waitFor()
    await leave(page)
  })

  async function memberOfTwo() {
    const email = `two-${Date.now()}@example.com`
    const { userId } = await server.member({ email, organization: 'First place' })
    const second = await server.member({ email, organization: 'Second place' })
    return { email, organizationId: second.organizationId, cookie: (await signedIn(server, userId)).secret }
  }

  it('GraphiQL works for a signed-in person, in the selected organization', async () => {
    const { cookie, organizationId } = await memberOfTwo()
    const { page, complaints } = await visit(browser, { url: server.url, cookie }, '/graphql')
    await page.getByLabel('Organization', { exact: true }).selectOption(organizationId)
    expect(await page.getByLabel('Token').isVisible()).toBe(false)
    const answer = page.waitForResponse(async (response) =>
      (response.request().postData() ?? '').includes('totalCount'),
    )
    await page.getByRole('button', { name: /Execute query/ }).click()
    expect(await (await answer).json()).toEqual({ data: { agents: { totalCount: 0, nodes: [] } } })
    expect((await answer).request().headers()['x-organization']).toBe(organizationId)
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('GraphiQL asks other visitors for a token', async () => {
    const page = await open('/graphql')
    await page.getByLabel('Token').fill(server.token)
    await page.getByRole('button', { name: 'Load the schema' }).click()
    const answer = page.waitForResponse(async (response) =>
      (response.request().postData() ?? '').includes('totalCount'),
    )
    await page.getByRole('button', { name: /Execute query/ }).click()
    expect((await answer).status()).toBe(200)
    await leave(page)
  })

  it('the API reference sends requests as the signed-in person, also writes', async () => {
    const { cookie, email, organizationId } = await memberOfTwo()
    const { page, complaints } = await visit(browser, { url: server.url, cookie }, '/api/docs#/chats/chatsCreate')
    await page.getByText(`act as ${email}`).waitFor()
    await page.getByLabel('the organization').selectOption(organizationId)
    await page.getByRole('button', { name: 'Try it out' }).click()
    const answer = page.waitForResponse('**/api/v1/chats')
    await page.getByRole('button', { name: 'Execute' }).click()
    expect((await answer).status()).toBe(200)
    // A schema that the operation refers to has its members.
    await page.getByText('Schema', { exact: true }).last().click()
    await page.getByText('The body of every error').waitFor()
    await page.getByText('statusMessage', { exact: true }).waitFor()
    expect(await server.service.deps.db.chat.count({ where: { organizationId } })).toBe(1)
    expect(complaints).toEqual([])
    await leave(page)
  })
})

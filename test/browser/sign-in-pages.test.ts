import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { returnPath } from '../../src/http/return-to.ts'
import { hasBrowser, launch, leave, visit } from '../support/browser.ts'
import { newLink, setPassword } from '../support/browser-session.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const PASSWORD = 'eleven blue kettles sing'
const PAGES = ['/app/accept', '/app/sign-in', '/app/welcome', '/app/forgot', '/app/password', '/app/account']

const server = await use(startServer())

describe('the path to return to', () => {
  it.each([
    ['/app/chat/1?x=2#y', '/app/chat/1?x=2#y'],
    ['//evil.example', '/app'],
    ['/\\evil.example', '/app'],
    ['https://evil.example', '/app'],
    ['javascript:alert(1)', '/app'],
    ['/\t/evil.example', '/app'],
    ['/app\\..\\evil', '/app'],
    ['app', '/app'],
    ['', '/app'],
    [`/${'x'.repeat(3_000)}`, '/app'],
    [null, '/app'],
  ])('%j leads to %s', (given, path) => {
    expect(returnPath(given)).toBe(path)
    expect(new URL(returnPath(given), 'http://muster.example').origin).toBe('http://muster.example')
  })
})

it.each(PAGES)('%s runs only its own script and fits in no frame', async (path) => {
  const answer = await fetch(`${server.url}${path}?returnTo=${encodeURIComponent('"><script>alert(1)</script>')}`)
  const html = await answer.text()
  expect(answer.status).toBe(200)
  expect(html).not.toContain('<script>')
  expect(html).not.toMatch(/ on\w+=|style=/)
  const policy = answer.headers.get('content-security-policy') ?? ''
  for (const rule of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]) {
    expect(policy).toContain(rule)
  }
  expect(policy).not.toContain('unsafe')
  const head = await fetch(server.url + path, { method: 'HEAD' })
  expect([head.status, (await fetch(server.url + path, { method: 'POST' })).status]).toEqual([200, 405])
})

describe.skipIf(!hasBrowser)('in a browser', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await launch()
  })
  afterAll(() => browser?.close())

  async function open(path: string, options: { colorScheme?: 'dark' | 'light' } = {}): Promise<Page> {
    const viewport = { width: 375, height: 700 }
    const { page, complaints } = await visit(browser, { url: server.url, cookie: '' }, path, { viewport, ...options })
    expect(complaints).toEqual([])
    page.on('pageerror', (error) => expect.unreachable(String(error)))
    return page
  }

  /** Waits until the page has this path, with any query. */
  const arrive = (page: Page, path: string) => page.waitForURL((url) => url.pathname === path)

  let people = 0
  async function person(options: Parameters<TestServer['member']>[0] = {}) {
    const email = `page-${++people}@example.com`
    const member = await server.member({ email, ...options })
    await setPassword(server, member.userId, PASSWORD)
    return { ...member, email }
  }

  async function signIn(page: Page, email: string, password: string): Promise<void> {
    await page.getByLabel('E-mail address').fill(email)
    await page.getByLabel('Password', { exact: true }).fill(password)
    await page.getByRole('button', { name: 'Sign in' }).click()
  }

  async function invited(email: string): Promise<string> {
    const { token, organizationId } = await server.member({ organization: 'Hosts', role: 'admin' })
    const { body } = await request(server, 'POST', `/api/v1/organizations/${organizationId}/invitations`, {
      body: { email, role: 'member' },
      token,
    })
    return `/app/accept#${body.url.split('#')[1]}`
  }

  it('an invited person chooses a name and a password, and is a member', async () => {
    const email = `page-${++people}@example.com`
    const page = await open(await invited(email))
    await page.getByText(`${email} is invited to join Hosts as member.`).waitFor()
    await page.getByLabel('Your name').fill('Grace')
    await page.getByLabel('Choose a password').fill('short')
    await page.getByRole('button', { name: 'Accept the invitation' }).click()
    await page.getByRole('alert').getByText('at least 12 characters').waitFor()
    await page.getByLabel('Choose a password').fill(PASSWORD)
    await page.getByRole('button', { name: 'Accept the invitation' }).click()
    await arrive(page, '/app')
    await page.goto('/app/account')
    await page.getByText('Hosts (member)').waitFor()
    await leave(page)
  })

  it('an invited account signs in first, and then joins', async () => {
    const { email } = await person({ organization: 'Guests' })
    const page = await open(await invited(email))
    await page.getByRole('button', { name: 'Accept the invitation' }).click()
    await page.getByRole('alert').getByText('Sign in required').waitFor()
    await page.getByRole('link', { name: 'Sign in as the invited address first' }).click()
    await signIn(page, email, PASSWORD)
    await arrive(page, '/app/accept')
    await page.getByRole('button', { name: 'Accept the invitation' }).click()
    await arrive(page, '/app')
    await page.goto('/app/account')
    await page.getByText('Guests (member), Hosts (member)').waitFor()
    await leave(page)
  })

  it('a person signs in with a password and reaches the requested page', async () => {
    const { email } = await person()
    const page = await open('/app/account')
    await arrive(page, '/app/sign-in')
    expect(new URL(page.url()).searchParams.get('returnTo')).toBe('/app/account')
    await signIn(page, email, 'wrong')
    await page.getByRole('alert').getByText('Wrong e-mail address or password.').waitFor()
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD)
    const refusal = { message: 'Service temporarily unavailable. Please retry.', detail: 'The disk is full.' }
    await page.route('**/api/auth/login', (route) => route.fulfill({ status: 503, json: refusal }))
    await page.keyboard.press('Enter')
    await page.getByRole('alert').getByText('Please retry. The disk is full.').waitFor()
    await page.unroute('**/api/auth/login')
    // A browser that refuses cookies.
    await page.route('**/api/auth/login', (route) => route.fulfill({ json: {} }))
    await page.keyboard.press('Enter')
    await page.getByRole('alert').getByText('The browser did not keep the sign-in.').waitFor()
    await page.unroute('**/api/auth/login')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await arrive(page, '/app/account')
    await page.getByText(email).waitFor()
    expect(await page.evaluate('document.cookie')).toBe('')
    // The way back leads past the form.
    await page.goBack()
    await expect.poll(() => page.url()).not.toContain('/app/')
    await leave(page)
  })

  it('the sixth wrong password shows the time to wait', async () => {
    await server.service.deps.db.signInLimit.deleteMany({})
    const { email } = await person()
    const page = await open('/app/sign-in')
    for (let time = 0; time < 5; time++) {
      const answer = page.waitForResponse('**/api/auth/login')
      await signIn(page, email, `wrong ${time}`)
      expect((await answer).status()).toBe(401)
      await page.getByRole('button', { name: 'Sign in', disabled: false }).waitFor()
    }
    await signIn(page, email, PASSWORD)
    const refusal = /Too many failed attempts\. Try again in \d+ minutes\./
    await page.getByRole('alert').getByText(refusal).waitFor()
    await server.service.deps.db.signInLimit.deleteMany({})
    await leave(page)
  })

  it('a link signs in only by its button, and a password can be set', async () => {
    const { userId } = await server.member()
    const { email } = await server.service.deps.db.user.findUniqueOrThrow({ where: { id: userId } })
    const page = await open('/app/welcome?returnTo=/app/account')
    await page.getByRole('alert').getByText('open the whole link').waitFor()
    await page.goto(`/app/welcome?returnTo=/app/account#${await newLink(server, userId)}`)
    await page.getByRole('button', { name: 'Sign in' }).waitFor()
    await page.reload()
    expect(await server.service.deps.db.oneTimeLink.count({ where: { userId } })).toBe(1)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByText(`You are signed in as ${email}.`).waitFor()
    expect(page.url()).not.toContain('#')
    await page.getByLabel('Choose a password').fill('password1234')
    await page.getByRole('button', { name: 'Set password' }).click()
    await page.getByRole('alert').getByText('a less common password').waitFor()
    await page.getByLabel('Choose a password').fill(PASSWORD)
    await page.getByRole('button', { name: 'Set password' }).click()
    await arrive(page, '/app/account')
    const other = await open('/app/sign-in?returnTo=/app/account')
    await signIn(other, email, PASSWORD)
    await arrive(other, '/app/account')
    await Promise.all([page, other].map(leave))
  })

  it('a browser can be signed out from another one', async () => {
    const { email } = await person()
    const [one, two] = [
      await open('/app/sign-in?returnTo=/app/account'),
      await open('/app/sign-in?returnTo=/app/account'),
    ]
    for (const page of [one, two]) {
      await signIn(page, email, PASSWORD)
      await arrive(page, '/app/account')
    }
    await one.reload()
    await one.getByRole('listitem').getByRole('button').click()
    await one.getByText('That browser is signed out.').waitFor()
    await two.reload()
    await arrive(two, '/app/sign-in')
    await one.getByRole('button', { name: 'Sign out' }).click()
    await arrive(one, '/app/sign-in')
    await Promise.all([one, two].map(leave))
  })

  it('two tabs work in two organizations at the same time', async () => {
    const { email } = await person({ organization: 'Tab one' })
    await server.member({ email, organization: 'Tab two' })
    const one = await open('/app/sign-in?returnTo=/app/account')
    await signIn(one, email, PASSWORD)
    await arrive(one, '/app/account')
    const two = await one.context().newPage()
    await two.goto('/app/account')
    const work = (page: Page, slug: string) =>
      page.evaluate(async (organization) => {
        const headers = { 'X-Muster-Request': '1', 'X-Organization': organization, 'Content-Type': 'application/json' }
        const body = JSON.stringify({ name: `of ${organization}`, systemPrompt: 'x' })
        await fetch('/api/v1/agents', { method: 'POST', headers, body })
        return (await fetch(`/api/v1/agents?organization=${organization}`)).json()
      }, slug)
    const [first, second] = await Promise.all([work(one, 'tab-one'), work(two, 'tab-two')])
    const names = ({ agents }: { agents: { name: string }[] }) => agents.map(({ name }) => name)
    expect([names(first), names(second)]).toEqual([['of tab-one'], ['of tab-two']])
    await leave(one)
  })

  it('a page of another origin can neither write nor read, by form, fetch or GET', async () => {
    const { email, organizationId } = await person()
    const page = await open('/app/sign-in?returnTo=/app/account')
    await signIn(page, email, PASSWORD)
    await arrive(page, '/app/account')
    const evil = await page.context().newPage()
    // A browser treats it as another site, though it is the same machine.
    await evil.goto(`${server.url.replace('127.0.0.1', 'localhost')}/healthz`)
    const results = await evil.evaluate(async (url) => {
      const headers = { 'X-Muster-Request': '1', 'Content-Type': 'application/json' }
      const body = JSON.stringify({ name: 'Evil', systemPrompt: 'x' })
      const attempts = [
        fetch(`${url}/api/v1/agents`, { method: 'POST', credentials: 'include', headers, body }),
        fetch(`${url}/api/v1/agents`, { method: 'POST', credentials: 'include', mode: 'no-cors', body }),
        fetch(`${url}/api/v1/agents`, { credentials: 'include' }),
        fetch(`${url}/api/auth/logout`, { method: 'POST', credentials: 'include', mode: 'no-cors' }),
      ]
      return Promise.all(
        attempts.map((attempt) =>
          attempt.then(
            async (response) => `${response.type} ${await response.text()}`,
            () => 'refused',
          ),
        ),
      )
    }, server.url)
    expect(results).toEqual(['refused', 'opaque ', 'refused', 'opaque '])
    await evil.evaluate((url) => {
      const { document } = globalThis as any
      const form = document.createElement('form')
      Object.assign(form, { method: 'post', action: `${url}/api/v1/agents`, enctype: 'text/plain' })
      const input = document.createElement('input')
      Object.assign(input, { name: '{"name":"Evil","systemPrompt":"x","a":"', value: '"}' })
      form.append(input)
      document.body.append(form)
      form.submit()
    }, server.url)
    await evil.waitForURL('**/api/v1/agents')
    expect(await server.service.deps.db.agent.count({ where: { organizationId, name: 'Evil' } })).toBe(0)
    await page.reload()
    await page.getByText(email).waitFor()
    await leave(page)
  })

  it.each(['light', 'dark'] as const)('the pages fit into 375 pixels in %s colours', async (colorScheme) => {
    const page = await open('/healthz', { colorScheme })
    for (const path of PAGES.filter((path) => path !== '/app/account')) {
      await page.goto(path)
      const { width, labels, back } = await page.evaluate(() => {
        const { document, getComputedStyle } = globalThis as any
        return {
          width: document.documentElement.scrollWidth,
          labels: [...document.querySelectorAll('input')].map((input) => input.labels?.length),
          back: getComputedStyle(document.body).backgroundColor,
        }
      })
      expect(width).toBeLessThanOrEqual(375)
      expect(labels.every((count) => count === 1)).toBe(true)
      expect(back).toBe(colorScheme === 'dark' ? 'rgb(20, 23, 28)' : 'rgb(246, 247, 249)')
    }
    await leave(page)
  })
})

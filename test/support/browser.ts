import { existsSync } from 'node:fs'
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { expect } from 'vitest'

/** Where Debian puts it. */
const CHROMIUM_PATH = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium'

/** Whether there is a browser to test with. Tests without one are skipped, and say so. */
export const hasBrowser = existsSync(CHROMIUM_PATH)
if (!hasBrowser)
  console.warn(`No browser at ${CHROMIUM_PATH}: the tests of the console are skipped. Set CHROMIUM_PATH.`)

export const launch = (): Promise<Browser> =>
  chromium.launch({
    executablePath: CHROMIUM_PATH,
    args: [
      ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
    ],
  })

export type Visitor = {
  context: BrowserContext
  page: Page
  /** What the page complained of: errors, refused by the policy, failed requests to other origins. */
  complaints: string[]
}

/** Opens the console as the holder of a token. */
export async function visit(
  browser: Browser,
  server: { url: string; token: string },
  path = '/app',
  options: BrowserContextOptions = {},
): Promise<Visitor> {
  const context = await browser.newContext({
    baseURL: server.url,
    extraHTTPHeaders: { Authorization: `Bearer ${server.token}` },
    locale: 'en-GB',
    ...options,
  })
  const { profile } = await (
    await fetch(new URL('/api/v1/profile', server.url), { headers: { Authorization: `Bearer ${server.token}` } })
  ).json()
  const { organization, organizations, ...user } = profile
  await context.route('**/api/auth/session', (route) =>
    route.fulfill({ json: { user, organization, organizations, role: organization.role, scopes: ['*'] } }),
  )
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('console', (message) => {
    if (/Content Security Policy|Refused to/i.test(message.text())) complaints.push(message.text())
  })
  page.on('request', (request) => {
    const url = new URL(request.url())
    if (/^https?:$/.test(url.protocol) && url.origin !== new URL(server.url).origin) complaints.push(`asked ${url}`)
  })
  await page.goto(path)
  return { context, page, complaints }
}

/** The composer of the page. */
export const composer = (page: Page) => page.locator('[data-composer]')

/** Says something, as a person does. */
export async function say(page: Page, text: string): Promise<void> {
  await composer(page).fill(text)
  await page.keyboard.press('Enter')
}

/** The text of the last answer that is shown. */
export const lastAnswer = (page: Page): Promise<string> =>
  page
    .locator('[data-turn=assistant]')
    .last()
    .innerText()
    .catch(() => '')

/** Checks that each of the words w0, w1, … up to a count is there, each once and in order. */
export function expectEachOnce(text: string, count: number): void {
  expect(text.match(/\bw\d+\b/g) ?? []).toEqual(Array.from({ length: count }, (_, index) => `w${index}`))
}

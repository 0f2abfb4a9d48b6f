import { existsSync } from 'node:fs'
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
  type Request,
} from 'playwright-core'
import { expect, onTestFailed } from 'vitest'
import { signedIn } from './browser-session.ts'
import { request } from './rest.ts'
import type { TestServer } from './server.ts'

/** Paths of Debian's packages. The headless shell takes two thirds of the processor time of the whole browser. */
const PATHS = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium']
const CHROMIUM_PATH = process.env.CHROMIUM_PATH ?? PATHS.find((path) => existsSync(path)) ?? ''

/** Whether a browser is installed. Tests that need one are skipped without it, and report that. */
export const hasBrowser = existsSync(CHROMIUM_PATH)
if (!hasBrowser)
  console.warn(
    `No browser at ${CHROMIUM_PATH || PATHS.join(' or ')}: the tests of the console are skipped. Set CHROMIUM_PATH.`,
  )

export const launch = (): Promise<Browser> =>
  chromium.launch({
    executablePath: CHROMIUM_PATH,
    timeout: 180_000,
    args: [
      ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
      ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
    ],
  })

/**
 * Time limit of an action (ms), because a page beside busy tests is slow. The slowest one took 24 s with a processor of
 * a sixth of the speed on a busy machine. A broken test takes this time.
 */
const PATIENCE = 60_000

/** Opens a context with generous time limits. */
export async function openContext(browser: Browser, options?: BrowserContextOptions): Promise<BrowserContext> {
  const context = await browser.newContext(options)
  context.setDefaultTimeout(PATIENCE)
  return context
}

export type Visitor = {
  context: BrowserContext
  page: Page
  /** Problems of the page: errors, violations of the policy, failed requests to other origins. */
  complaints: string[]
}

/** The URL of the console, and the cookie of a signed-in user. */
export type Door = { url: string; cookie: string }

/** Signs the owner of a server in. */
export async function ownerOf(server: TestServer): Promise<Door> {
  const { profile } = (await request(server, 'GET', '/api/v1/profile')).body
  const { secret } = await signedIn(server, profile.id)
  return { url: server.url, cookie: secret }
}

/** Pages of ended visits by the origin and options of their contexts. */
const left = new WeakMap<Browser, Map<string, Page[]>>()
const placeOf = new WeakMap<Page, Page[]>()

/**
 * Opens a page of the service, as a signed-in user if there is a cookie. Reuses the page of an ended visit, because a
 * new context takes as much processor time as two pages.
 */
export async function visit(
  browser: Browser,
  { url, cookie }: Door,
  path = '/app',
  options: BrowserContextOptions = {},
): Promise<Visitor> {
  const pages = left.get(browser) ?? new Map<string, Page[]>()
  left.set(browser, pages)
  const key = JSON.stringify([url, options])
  const place = pages.get(key) ?? []
  pages.set(key, place)
  const page =
    place.pop() ?? (await (await openContext(browser, { baseURL: url, locale: 'en-GB', ...options })).newPage())
  placeOf.set(page, place)
  const context = page.context()
  if (cookie) await context.addCookies([{ name: 'muster', value: cookie, url, httpOnly: true, sameSite: 'Lax' }])
  const complaints: string[] = []
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('console', (message) => {
    if (/Content Security Policy|Refused to/i.test(message.text())) complaints.push(message.text())
  })
  page.on('request', (request) => {
    const asked = new URL(request.url())
    if (/^https?:$/.test(asked.protocol) && asked.origin !== new URL(url).origin) complaints.push(`asked ${asked}`)
  })
  reportIfFailed(page)
  await page.goto(path)
  return { context, page, complaints }
}

/** Prints what a page shows and its last changes, should the current test fail: a race may not come again for days. */
function reportIfFailed(page: Page): void {
  const calls: string[] = []
  const note = (request: Request, outcome: string) =>
    calls.push(`${request.method()} ${new URL(request.url()).pathname}: ${outcome}`)
  const isChange = (request: Request) => request.method() !== 'GET'
  page.on('request', (request) => isChange(request) && note(request, 'asked'))
  page.on('response', (response) => {
    if (isChange(response.request()) || !response.ok()) note(response.request(), `${response.status()}`)
  })
  page.on('requestfailed', (request) => note(request, request.failure()?.errorText ?? 'failed'))
  onTestFailed(async () => {
    const shown = await page.locator('body').ariaSnapshot({ timeout: 5_000 }).catch(String)
    console.error(`${page.url()}\n${shown}\n\n${calls.slice(-30).join('\n')}`)
  })
}

/** Ends a visit: leaves a page without cookies, storage, listeners and other tabs for a later visit. */
export async function leave(page: Page): Promise<void> {
  const context = page.context()
  for (const tab of context.pages()) if (tab !== page) await tab.close()
  page.removeAllListeners()
  // Here nothing writes to the storage any more.
  await page.goto('/healthz')
  await page.evaluate(() => {
    localStorage.clear()
    sessionStorage.clear()
  })
  await context.clearCookies()
  placeOf.get(page)?.push(page)
}

/** The composer of the page. */
export const composer = (page: Page) => page.locator('[data-composer]')

/** Types and sends a message, as a person does. */
export async function sendMessage(page: Page, text: string): Promise<void> {
  await composer(page).fill(text)
  await composer(page).press('Enter')
}

/** The text of the last visible answer. */
export const lastAnswer = (page: Page): Promise<string> =>
  page
    .locator('[data-turn=assistant]')
    .last()
    .innerText()
    .catch(() => '')

/**
 * Expects the last answer of a page to have each of the words w0, w1, … up to a count, once and in order, at this
 * moment.
 */
export async function expectEachOnce(page: Page, count: number): Promise<void> {
  const words = (await lastAnswer(page)).match(/\bw\d+\b/g) ?? []
  expect(words).toEqual(Array.from({ length: count }, (_, index) => `w${index}`))
}

/**
 * Watches the words w0, w1, … of the answers in a page, at every change of it and in every frame. Returns a function
 * that lists the times at which words disappeared. A reload starts again.
 */
export async function watchWords(page: Page): Promise<() => Promise<string[]>> {
  const drops: string[] = []
  await page.exposeFunction('dropped', (text: string) => void drops.push(text))
  await page.addInitScript(() => {
    let most = 0
    const look = () => {
      const answers = [...document.querySelectorAll<HTMLElement>('[data-turn=assistant]')]
      const words = answers.flatMap((answer) => answer.innerText.match(/\bw\d+\b/g) ?? []).length
      if (words < most) (window as unknown as { dropped: (text: string) => void }).dropped(`${words} of ${most}`)
      most = Math.max(most, words)
    }
    new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true })
    const everyFrame = () => {
      look()
      requestAnimationFrame(everyFrame)
    }
    requestAnimationFrame(everyFrame)
  })
  return async () => drops
}

/**
 * Holds requests of a page back, as a slow network does. Returns a function that lets them go, and ends all routes of
 * the page.
 */
export async function holdBack(page: Page, url: string | RegExp): Promise<() => Promise<void>> {
  const gate = Promise.withResolvers<void>()
  await page.route(url, (route) => gate.promise.then(() => route.continue()))
  return () => {
    gate.resolve()
    return page.unrouteAll({ behavior: 'wait' })
  }
}

/** Puts a page into the background, or back: a browser without a screen shows all of its tabs. */
export const setHidden = (page: Page, isHidden: boolean): Promise<void> =>
  page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })
    document.dispatchEvent(new Event('visibilitychange'))
  }, isHidden)

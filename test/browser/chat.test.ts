import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMcp } from '../engine/tool-lab.ts'
import {
  composer,
  type Door,
  expectEachOnce,
  hasBrowser,
  holdBack,
  lastAnswer,
  launch,
  leave,
  ownerOf,
  sendMessage,
  setHidden,
  visit,
  watchWords,
} from '../support/browser.ts'
import { signedIn } from '../support/browser-session.ts'
import { createFolder } from '../support/folder.ts'
import { startForwarder } from '../support/forwarder.ts'
import { freePort } from '../support/free-port.ts'
import { startMcpServer } from '../support/mcp-server.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { spawnServer } from '../support/process.ts'
import { request } from '../support/rest.ts'
import { startServer, type TestServer } from '../support/server.ts'

/** An image of one pixel. */
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

/** The request of a new chat, of an agent or of a person without any. */
const BEGINNING = /\/trpc\/(agents\.execute|executions\.create)/

const words = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => `w${from + index} `)

describe.skipIf(!hasBrowser)('a chat in the console', () => {
  let browser: Browser
  let model: ModelServer
  let server: TestServer
  let owner: Door
  beforeAll(async () => {
    browser = await launch()
    model = await startModelServer()
    server = await startServer({ OPENAI_BASE_URL: model.baseUrl, ALLOW_PRIVATE_NETWORK: 'true' })
    owner = await ownerOf(server)
  })
  afterAll(async () => {
    await browser?.close()
    await server?.[Symbol.asyncDispose]()
    await model?.close()
  })

  it('stays at its end in any window, goes there to send, prints whole, writes right to left', async () => {
    // The first chat of an organization has the next steps at its end.
    const { userId } = await server.member({ organization: 'Newcomers', role: 'owner' })
    const { secret } = await signedIn(server, userId)
    const { page } = await visit(browser, { url: server.url, cookie: secret })
    model.script({ tokens: [`First \\(a_{1}\\).\n\n- שלום\n\n${'A paragraph of an answer.\n\n'.repeat(99)}`] })
    await sendMessage(page, 'שלום')
    await page.waitForURL('**/app/chats/*')
    await expect.poll(() => lastAnswer(page)).toContain('A paragraph')
    await page.getByText('Next steps').waitFor()
    expect(await page.locator('.prose code').textContent()).toBe('a_{1}')
    const list = page.locator('.prose ul')
    expect(await list.evaluate((element) => getComputedStyle(element).direction)).toBe('rtl')
    expect(await list.evaluate((element) => Number.parseFloat(getComputedStyle(element).paddingRight))).toBeGreaterThan(
      0,
    )
    const title = page.getByRole('heading', { name: 'שלום', level: 1 })
    expect(await title.evaluate((element) => getComputedStyle(element).textAlign)).toBe('left')
    const latest = page.getByRole('button', { name: 'Latest' })
    const whole = page.viewportSize()!
    // The second one is a phone on its side, with a keyboard on its screen.
    for (const viewport of [{ width: 320, height: 400 }, { width: 740, height: 200 }, whole]) {
      await page.setViewportSize(viewport)
      await composer(page).fill('\n\n\n')
      const button = await page.getByRole('button', { name: 'Send' }).boundingBox()
      expect(button!.y + button!.height).toBeLessThan(viewport.height)
      // Two frames later the page has noticed the scrolling.
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))
      expect([viewport.width, await latest.count()]).toEqual([viewport.width, 0])
    }
    await page.getByRole('log').evaluate((element) => element.scrollTo({ top: 0 }))
    await latest.waitFor()
    await sendMessage(page, 'And more')
    await latest.waitFor({ state: 'detached' })
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    // A fast answer grows between the step to its end and the event of that.
    const toEnd = () => page.getByRole('log').evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight)
    const toRemove = await page.getByRole('log').evaluateHandle((box) => {
      const growth = document.createElement('p')
      growth.style.height = '300px'
      box.firstElementChild?.append(growth)
      box.dispatchEvent(new Event('scroll'))
      return growth
    })
    await expect.poll(toEnd).toBeLessThan(2)
    expect(await latest.count()).toBe(0)
    await toRemove.evaluate((growth) => growth.remove())
    // One step up is enough to read while an answer grows.
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['Some. ', gate.promise, 'A rest.\n\n'.repeat(9)] })
    await sendMessage(page, 'Grow')
    await expect.poll(() => lastAnswer(page)).toContain('Some.')
    await page.getByRole('log').press('ArrowUp')
    // The browser animates the step of 40 px.
    await expect.poll(toEnd).toBeGreaterThan(30)
    // A late answer that adds lines far above leaves the reader there.
    await page.getByRole('log').evaluate(async (box) => {
      const top = box.scrollTop
      const growth = document.createElement('p')
      growth.style.height = '20px'
      box.firstElementChild?.prepend(growth)
      while (box.scrollTop === top) await new Promise((done) => requestAnimationFrame(done))
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
      growth.remove()
    })
    await latest.waitFor()
    gate.resolve()
    await expect.poll(() => lastAnswer(page)).toContain('A rest.')
    await latest.waitFor()
    await latest.click()
    await expect.poll(toEnd).toBeLessThan(2)
    const paper = (await page.pdf()).toString('latin1')
    expect(paper.match(/\/Type \/Page\b/g)!.length).toBeGreaterThan(3)
    await page.emulateMedia({ media: 'print' })
    expect(await page.getByRole('navigation').isVisible()).toBe(false)
    expect(await page.getByRole('button', { name: 'Copy' }).filter({ visible: true }).count()).toBe(0)
    await page.emulateMedia({ media: null })
    await leave(page)
  })

  it('offers the next steps to a newcomer whose many agents each came with a chat', async () => {
    await using fresh = await startServer()
    for (let number = 1; number <= 6; number += 1) {
      const body = { name: `Agent ${number}`, systemPrompt: 'Help.' }
      await request(fresh, 'POST', '/api/v1/agents', { body })
    }
    const { page } = await visit(browser, await ownerOf(fresh))
    await page.getByRole('link', { name: 'Create an agent' }).waitFor()
    await leave(page)
  })

  it('leaves a reader above the end when a message is accepted late beside a refused one', async () => {
    const { page } = await visit(browser, owner)
    model.script({ tokens: ['A paragraph of an answer.\n\n'.repeat(99)] })
    await sendMessage(page, 'Begin')
    await page.waitForURL('**/app/chats/*')
    await expect.poll(() => lastAnswer(page)).toContain('A paragraph')
    await page.route('**/trpc/chats.send', (route) => route.abort(), { times: 1 })
    await sendMessage(page, 'Lost')
    await page.getByText('Not sent.').waitFor()
    const answer = Promise.withResolvers<void>()
    await page.route('**/trpc/chats.send', async (route) => {
      const response = await route.fetch()
      await answer.promise
      await route.fulfill({ response })
    })
    const rest = Promise.withResolvers<void>()
    model.script({ tokens: ['Some. ', rest.promise, 'A rest.'] })
    await sendMessage(page, 'Grow')
    await expect.poll(() => lastAnswer(page)).toContain('Some.')
    const log = page.getByRole('log')
    await log.press('ArrowUp')
    await log.evaluate((box) => {
      box.scrollTop = box.scrollHeight
      box.dispatchEvent(new Event('scroll'))
      // The event of the page's own step to the end may come after the key.
      box.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp', bubbles: true }))
      box.dispatchEvent(new Event('scroll'))
    })
    const latest = page.getByRole('button', { name: 'Latest' })
    await latest.waitFor()
    // The list has the message by now, and it is not shown a second time.
    await expect.poll(() => page.locator('[data-turn=user]').count()).toBe(3)
    await Promise.all([page.waitForResponse('**/trpc/chats.send'), answer.resolve()])
    rest.resolve()
    await expect.poll(() => lastAnswer(page)).toContain('A rest.')
    await latest.waitFor()
    await page.unrouteAll()
    page.once('dialog', (question) => void question.accept())
    await leave(page)
  })

  it('keeps the place of a reader in browsers that do not keep it themselves', async () => {
    const agent = { name: 'Ada', systemPrompt: 'x' }
    const { id: agentId } = (await request(server, 'POST', '/api/v1/agents', { body: agent })).body
    const { chat } = (await request(server, 'POST', '/api/v1/chats', { body: { agentId } })).body
    // A list is higher than its text, and a table, too.
    const tokens = [`${'- One\n'.repeat(4)}\n|a|b|\n|---|---|\n${'|1|2|\n'.repeat(9)}`]
    for (let index = 0; index < 40; index += 1) {
      model.script({ tokens })
      await request(server, 'POST', `/api/v1/chats/${chat.id}/messages`, { body: { message: `Question ${index}` } })
    }
    const { page } = await visit(browser, owner, '/healthz', { viewport: { width: 900, height: 600 } })
    await page.addInitScript(() => {
      const { supports } = CSS
      CSS.supports = (...given: [string]) => given[0] !== 'overflow-anchor' && supports.apply(CSS, given)
      document.addEventListener('DOMContentLoaded', () => {
        document.documentElement.style.setProperty('overflow-anchor', 'none')
      })
    })
    await page.goto(`/app/chats/${chat.id}`)
    await page.getByText('Question 39').first().waitFor()
    const moved = await page.getByRole('log').evaluate(async (box) => {
      box.style.setProperty('overflow-anchor', 'none')
      const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
      let most = 0
      for (let step = 0; step < 60; step += 1) {
        const turns = [...(box.firstElementChild?.children ?? [])]
        const turn = turns.find((each) => each.getBoundingClientRect().bottom > 200)
        const before = turn?.getBoundingClientRect().bottom ?? 0
        box.scrollTop -= 150
        await frames()
        const after = turn?.getBoundingClientRect().bottom ?? 0
        most = Math.max(most, Math.abs(after - before - 150))
      }
      return most
    })
    expect(moved).toBeLessThan(3)
    await leave(page)
  })

  it('accepts a message on its first page, and names the authors of messages of others', async () => {
    const { page, complaints } = await visit(browser, owner)
    await sendMessage(page, 'Hello')
    await page.waitForURL('**/app/chats/*')
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    const { token } = await server.member({ email: 'grace@example.com' })
    const body = { name: 'Shared', systemPrompt: 'x', visibility: 'organization' }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { token, body })).body
    const asked = { token, body: { message: 'Hello from me' } }
    const { chatId } = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, asked)).body
    await page.goto(`/app/chats/${chatId}`)
    await page.locator('[data-turn=user]').filter({ hasText: 'Hello from me' }).getByText('grace').waitFor()
    await page
      .getByRole('complementary')
      .getByRole('link', { name: /Hello from me.*Shared · grace/ })
      .waitFor()
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('begins in a space with the agent of the space, as missions and tasks can', async () => {
    const create = async (path: string, body: object) =>
      (await request(server, 'POST', `/api/v1/${path}`, { body })).body.id as string
    const agentId = await create('agents', { name: 'Pilot', systemPrompt: 'x' })
    const spaceId = await create('spaces', { name: 'Harbour', assignedAgents: [agentId] })
    const { page, complaints } = await visit(browser, owner, `/app/spaces/${spaceId}`)
    await page.getByRole('link', { name: 'New chat' }).click()
    await page.getByText('In the space Harbour.').waitFor()
    await page.getByRole('button', { name: 'Talk to Pilot' }).waitFor()
    await sendMessage(page, 'Ahoy')
    await page.waitForURL('**/app/chats/*')
    await page.getByRole('main').getByRole('link', { name: 'Harbour' }).waitFor()
    const { chats } = (await request(server, 'GET', `/api/v1/chats?spaceId=${spaceId}`)).body
    expect(chats).toMatchObject([{ title: 'Ahoy', agentId }])
    const dialog = page.getByRole('dialog')
    const choose = async (label: string, name: string) => {
      await dialog.getByRole('combobox', { name: label }).fill(name)
      await dialog.getByRole('option', { name }).click()
    }
    await page.goto('/app/missions')
    await page.getByRole('button', { name: 'New mission' }).first().click()
    await dialog.getByLabel('Title').fill('Tides')
    await dialog.getByLabel('Goal').fill('Read them')
    await choose('Agent', 'Pilot')
    await choose('Space', 'Harbour')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Tides' }).waitFor()
    await page.goto('/app/tasks')
    await page.getByRole('button', { name: 'New task' }).click()
    await dialog.getByLabel('Title').fill('Mend the nets')
    await choose('Space', 'Harbour')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await dialog.waitFor({ state: 'detached' })
    const [mission] = (await request(server, 'GET', '/api/v1/missions?search=tides')).body.missions
    const { tasks } = (await request(server, 'GET', `/api/v1/tasks?spaceId=${spaceId}`)).body
    expect([mission.spaceId, tasks.map(({ title }: { title: string }) => title)]).toEqual([spaceId, ['Mend the nets']])
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('works without HTTPS, and offers to read again a chat that it could not read', async () => {
    const { page, complaints } = await visit(browser, owner)
    await page.evaluate(() => {
      Reflect.deleteProperty(Crypto.prototype, 'randomUUID')
      Reflect.deleteProperty(Navigator.prototype, 'clipboard')
    })
    await sendMessage(page, 'Hello')
    await page.waitForURL('**/app/chats/*')
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    // The button says so for a moment.
    await Promise.all([
      page.getByRole('button', { name: 'Copied' }).waitFor(),
      page.locator('[data-turn=assistant]').getByRole('button', { name: 'Copy' }).click(),
    ])
    // Without its stream the page reads nothing again by itself.
    const [messages, stream] = [/\/trpc\/[^?]*chats\.messages/, /\/trpc\/chats\.events/]
    for (const path of [messages, stream]) await page.route(path, (route) => route.abort())
    await page.reload()
    await page.getByText('The server cannot be reached').last().waitFor()
    await page.unroute(messages)
    await page.getByRole('button', { name: 'Try again' }).last().click()
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    await page.unroute(stream)
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('begins with the agent in the address, also one of another organization', async () => {
    const { token } = await server.member({ organization: 'Elsewhere' })
    const name = `Foreigner ${'of another organization '.repeat(7)}`
    const body = { name, systemPrompt: 'x', visibility: 'public' }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { token, body })).body
    const { page } = await visit(browser, owner, `/app?agent=${id}`)
    const input = page.getByPlaceholder('Message Foreigner')
    // A long name takes one line of the composer.
    const lines = await input.evaluate((box) => box.clientHeight / Number.parseFloat(getComputedStyle(box).lineHeight))
    expect(lines).toBeLessThan(2.5)
    await sendMessage(page, 'Hello')
    await page.waitForURL('**/app/chats/*')
    await page.getByRole('heading', { name: 'Hello' }).waitFor()
    expect((await request(server, 'GET', '/api/v1/executions?limit=1')).body.executions[0]?.agentId).toBe(id)
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    await page.getByRole('link', { name: 'Runs' }).click()
    await page.getByRole('cell', { name }).first().waitFor()
    await leave(page)
  })

  it('keeps an unsent message over a reload, and hands it to a new chat if its chat is deleted', async () => {
    const { page } = await visit(browser, owner)
    await composer(page).fill('For a new chat')
    const agent = { name: 'Gone', systemPrompt: 'x' }
    const { id: agentId } = (await request(server, 'POST', '/api/v1/agents', { body: agent })).body
    const { chat } = (await request(server, 'POST', '/api/v1/chats', { body: { agentId } })).body
    await page.goto(`/app/chats/${chat.id}`)
    await composer(page).waitFor()
    const sending = '**/trpc/chats.send'
    const ofProxy = { status: 413, contentType: 'text/html', body: '<h1>Request Entity Too Large</h1>' }
    await page.route(sending, (route) => route.fulfill(ofProxy))
    await sendMessage(page, 'Refused')
    await page.getByText('Not sent. A proxy in front of the server answered in its place, with status 413.').waitFor()
    await page.reload()
    await page.getByText('Not sent.').waitFor()
    await page.unroute(sending)
    await composer(page).fill('Half a thought')
    await request(server, 'DELETE', `/api/v1/chats/${chat.id}`)
    await page.getByText('This chat cannot be shown').waitFor()
    await page.getByText('Refused\n\nHalf a thought').waitFor()
    await page.getByRole('link', { name: 'Continue in a new chat' }).click()
    await expect.poll(() => composer(page).inputValue()).toBe('For a new chat\n\nRefused\n\nHalf a thought')
    await page.goBack()
    await page.getByRole('main').getByRole('link', { name: 'New chat' }).last().waitFor()
    expect(await page.getByText('Half a thought').count()).toBe(0)
    await leave(page)
  })

  it('can be read when its agent is gone, says so, and hands an unsent message to a new chat', async () => {
    const body = { name: 'Leaving', systemPrompt: 'x' }
    const [first, second] = await Promise.all(
      [0, 1].map(async () => (await request(server, 'POST', '/api/v1/agents', { body })).body.id as string),
    )
    const execute = async (agentId: string, message: string, chatId?: string) =>
      (await request(server, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message, chatId } })).body
    const { chatId } = await execute(first!, 'Remember me')
    const { page, complaints } = await visit(browser, owner)
    // The page knows the agent, and hears of its end from the refused message.
    await Promise.all([
      page.waitForResponse((response) => /agents\.get/.test(response.url()) && response.url().includes(first!)),
      page.goto(`/app/chats/${chatId}`),
    ])
    await composer(page).fill('Half a thought')
    await request(server, 'DELETE', `/api/v1/agents/${first}`)
    await sendMessage(page, 'Too late')
    const notice = page.getByText('The agent of this chat is gone')
    await notice.waitFor()
    await page.getByText('Not sent. Agent not found').waitFor()
    await page.getByText('Remember me').first().waitFor()
    expect(await composer(page).count()).toBe(0)
    for (const name of ['Try again', 'Edit the message', 'Answer again'])
      expect([name, await page.getByRole('button', { name }).count()]).toEqual([name, 0])
    expect(await page.locator('section > header').getByRole('link', { name: 'Leaving' }).count()).toBe(0)
    await page.reload()
    await page.getByRole('link', { name: 'Continue in a new chat' }).click()
    await expect.poll(() => composer(page).inputValue()).toBe('Too late')
    await composer(page).fill('')
    // An agent that another client has chosen goes on to answer.
    await execute(second!, 'And me', chatId)
    // A message waits until the page has read the chat, and so knows the branch and its agent.
    const release = await holdBack(page, /\/trpc\/[^?]*chats\.messages/)
    await page.goto(`/app/chats/${chatId}`)
    await sendMessage(page, 'Still there?')
    await release()
    await expect.poll(() => page.locator('[data-turn=assistant]').count()).toBe(2)
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    expect(await notice.count()).toBe(0)
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('loses and repeats no word over a reload and a cut connection in mid-answer', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const second = Promise.withResolvers<void>()
    await using forwarder = await startForwarder(server.url)
    const through = { ...owner, url: forwarder.url }
    const { page, context } = await visit(browser, through)
    const drops = await watchWords(page)
    await page.reload()
    model.script({ tokens: [...words(0, 20), promise, ...words(20, 40), second.promise, ...words(40, 60)] })
    await sendMessage(page, 'Count')
    await expect.poll(() => lastAnswer(page)).toContain('w19')
    await page.reload()
    await expect.poll(() => lastAnswer(page)).toContain('w19')
    await expectEachOnce(page, 20)
    forwarder.cut()
    await page.getByText('Reconnecting').waitFor()
    resolve()
    forwarder.mend()
    await expect.poll(() => lastAnswer(page)).toContain('w39')
    await expectEachOnce(page, 40)
    // A page in the background has no connection.
    const isStream = (request: { url: () => string }) => request.url().includes('chats.events')
    const closed = page.waitForEvent('requestfailed', isStream)
    await setHidden(page, true)
    await closed
    second.resolve()
    await setHidden(page, false)
    await expect.poll(() => lastAnswer(page)).toContain('w59')
    await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' })
    await expectEachOnce(page, 60)
    await page.reload()
    await expect.poll(() => lastAnswer(page)).toContain('w59')
    await expectEachOnce(page, 60)
    expect(await drops()).toEqual([])
    await context.close()
  })

  it('shows waiting messages after a reload and of others, each once, and cancels them', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const { page } = await visit(browser, owner)
    model.script({ tokens: ['First ', promise, 'answer.'] }, { tokens: 'Second answer.' })
    await sendMessage(page, 'One')
    await expect.poll(() => lastAnswer(page)).toContain('First')
    const waiting = page.getByText('Waiting for its turn')
    await sendMessage(page, 'Two')
    await waiting.waitFor()
    const questions = page.locator('[data-turn=user] [dir=auto]')
    expect(await questions.allInnerTexts()).toEqual(['One', 'Two'])
    await page.reload()
    await expect.poll(() => questions.allInnerTexts()).toEqual(['One', 'Two'])
    await waiting.waitFor()
    const body = { message: 'Three', background: true }
    await request(server, 'POST', `/api/v1/chats/${page.url().split('/').at(-1)}/messages`, { body })
    await expect.poll(() => questions.allInnerTexts()).toEqual(['One', 'Two', 'Three'])
    await page.locator('[data-turn=user]').filter({ hasText: 'Three' }).getByRole('button', { name: 'Cancel' }).click()
    await expect.poll(() => questions.allInnerTexts()).toEqual(['One', 'Two'])
    resolve()
    await expect.poll(() => lastAnswer(page)).toContain('Second answer.')
    await waiting.waitFor({ state: 'detached' })
    expect(await questions.allInnerTexts()).toEqual(['One', 'Two'])
    await leave(page)
  })

  it('approves a call with an edited input, in place, and the list names who has decided', async () => {
    await using mcp = await startMcpServer()
    const mcpId = await createMcp(server, mcp.url, [{ tool: '*', mode: 'ask' }])
    const body = { name: 'Asker', systemPrompt: 'x', mcpInstanceIds: [mcpId] }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body })).body
    model.script({ toolCalls: [{ id: 'call', name: 'echo', input: { text: 'Hi' } }] }, { tokens: 'All done.' })
    const { page, complaints } = await visit(browser, owner, `/app?agent=${id}`)
    await page.getByRole('button', { name: 'Talk to Asker' }).waitFor()
    await sendMessage(page, 'Go')
    const card = page.getByRole('group', { name: 'Approval of echo' })
    // A screen reader reads that the run waits, and the whole answer at its end.
    const announcer = page.locator('#announcer')
    await announcer.getByText('Waits for approval of echo').waitFor()
    // Nor does the title of the chat replace it, which may come later.
    const release = await holdBack(page, /\/trpc\/[^?]*chats\.get/)
    await page.reload()
    await announcer.getByText('Waits for approval of echo').waitFor()
    await release()
    await page.locator('#title-announcer').getByText('Go').waitFor()
    await announcer.getByText('Waits for approval of echo').waitFor()
    await card.getByRole('button', { name: 'Edit' }).click()
    const input = card.getByLabel('Input (JSON)')
    await input.and(page.locator(':focus')).fill('{"text": 5}')
    await card.getByRole('button', { name: 'Approve the edited input' }).click()
    await card.getByText("It must be an input that fits the tool's schema").waitFor()
    await input.and(page.locator('[aria-invalid=true]:focus')).fill('{"text": "Edited"}')
    await expect.poll(() => page.title()).toContain('(1)')
    await card.getByRole('button', { name: 'Approve the edited input' }).click()
    await expect.poll(() => lastAnswer(page)).toContain('All done.')
    await announcer.getByText('All done.').waitFor()
    expect(mcp.calls).toEqual([{ tool: 'echo', input: { text: 'Edited' } }])
    await page.goto('/app/approvals?status=approved')
    const row = page.getByRole('listitem').filter({ hasText: 'Input, edited by You' })
    await row.getByText(/^by You, /).waitFor()
    await row.getByText('Input, edited by You').click()
    await row.getByText('"text": "Edited"').waitFor()
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('sends a dropped file with the message, and none before a failed one is uploaded again', async () => {
    const { page } = await visit(browser, owner)
    await composer(page).waitFor()
    const data = await page.evaluateHandle(() => {
      const transfer = new DataTransfer()
      transfer.items.add(new File(['# Plan'], 'plan.md', { type: 'text/markdown' }))
      return transfer
    })
    const isOpenedByBrowser = (place: string, transfer: typeof data) =>
      page.locator(place).evaluate((element, dataTransfer) => {
        const event = new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer })
        return element.dispatchEvent(event)
      }, transfer)
    expect(await isOpenedByBrowser('h1', data)).toBe(false)
    const text = await page.evaluateHandle(() => {
      const transfer = new DataTransfer()
      transfer.setData('text/plain', 'A text')
      return transfer
    })
    // The browser puts it into the input.
    expect(await isOpenedByBrowser('[data-composer]', text)).toBe(true)
    await page.dispatchEvent('form', 'drop', { dataTransfer: data })
    await page.getByText('plan.md').waitFor()
    await page.getByLabel('Uploading').waitFor({ state: 'detached' })
    await page.getByRole('link', { name: 'Agents', exact: true }).click()
    await page.getByText('plan.md').waitFor({ state: 'detached' })
    await page.goBack()
    await page.getByText('plan.md').waitFor()
    await page.reload()
    await page.getByText('plan.md').waitFor()
    const refusal = { message: 'Service temporarily unavailable. Please retry.', detail: 'The disk is full.' }
    await page.route('**/api/v1/media', (route) => route.fulfill({ status: 503, json: refusal }))
    const lost = { name: 'lost.txt', mimeType: 'text/plain', buffer: Buffer.from('Lost') }
    await page.locator('input[type=file]').setInputFiles(lost)
    await page.getByText('Please retry. The disk is full.').waitFor()
    await using folder = await createFolder()
    const changing = join(folder.path, 'changing.txt')
    await writeFile(changing, 'Before')
    await page.locator('input[type=file]').setInputFiles(changing)
    await page.getByRole('button', { name: 'Upload changing.txt again' }).waitFor()
    await sendMessage(page, 'Read it')
    await page.getByText('Some files were not uploaded.').waitFor()
    await page.unroute('**/api/v1/media')
    await page.getByRole('button', { name: 'Upload lost.txt again' }).click()
    await page.getByLabel('Uploading').waitFor({ state: 'detached' })
    await writeFile(changing, 'After a change')
    // The browser compares whole seconds.
    const later = Date.now() / 1_000 + 60
    await utimes(changing, later, later)
    await page.getByRole('button', { name: 'Upload changing.txt again' }).click()
    await page.getByText('The browser cannot read it.').waitFor()
    await page.getByRole('button', { name: 'Remove changing.txt' }).click()
    await sendMessage(page, 'Read it')
    await page.waitForURL('**/app/chats/*')
    const chatId = page.url().split('/').at(-1)
    await expect
      .poll(
        async () => (await request(server, 'GET', `/api/v1/executions?chatId=${chatId}`)).body.executions[0]?.mediaIds,
      )
      .toHaveLength(2)
    // The run asks the model before the next test scripts its answers.
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    await leave(page)
  })

  it('sends the reason of a denied call to the model', async () => {
    await using mcp = await startMcpServer()
    const mcpId = await createMcp(server, mcp.url, [{ tool: '*', mode: 'ask' }])
    const body = { name: 'Denied', systemPrompt: 'x', mcpInstanceIds: [mcpId] }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body })).body
    model.script({ toolCalls: [{ id: 'call', name: 'echo', input: { text: 'Hi' } }] }, { tokens: 'Then not.' })
    const asked = model.requests.length
    const { page } = await visit(browser, owner, `/app?agent=${id}`)
    await page.getByRole('button', { name: 'Talk to Denied' }).waitFor()
    await sendMessage(page, 'Go')
    const card = page.getByRole('group', { name: 'Approval of echo' })
    await card.getByRole('button', { name: 'Deny' }).click()
    const reason = card.getByLabel('Reason')
    // It chooses a word of an input method.
    await reason.dispatchEvent('keydown', { key: 'Enter', isComposing: true })
    await reason.fill('Not today')
    await card.getByRole('button', { name: 'Deny' }).click()
    await expect.poll(() => lastAnswer(page)).toContain('Then not.')
    expect(mcp.calls).toEqual([])
    expect(JSON.stringify((await model.request(asked + 1)).body)).toContain('Not today')
    await leave(page)
  })

  it('takes no second decision before the list knows the first one', async () => {
    await using mcp = await startMcpServer()
    const mcpId = await createMcp(server, mcp.url, [{ tool: '*', mode: 'ask' }])
    const agent = { name: 'Slow', systemPrompt: 'x', mcpInstanceIds: [mcpId] }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body: agent })).body
    model.script({ toolCalls: [{ id: 'call', name: 'echo', input: { text: 'Hi' } }] }, { tokens: 'Done.' })
    const body = { message: 'Go', background: true }
    const { chatId } = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body })).body
    const { page } = await visit(browser, owner, '/app/approvals')
    const card = page.getByRole('group', { name: 'Approval of echo' })
    const approve = card.getByRole('button', { name: 'Approve' })
    await approve.waitFor()
    const release = await holdBack(page, /\/trpc\/[^?]*approvals\.list/)
    await approve.click()
    await page.locator('#toasts').getByText('Approved').waitFor()
    expect(await approve.getAttribute('aria-busy')).toBe('true')
    await release()
    await card.waitFor({ state: 'detached' })
    await page.goto(`/app/chats/${chatId}`)
    await expect.poll(() => lastAnswer(page)).toContain('Done.')
    await leave(page)
  })

  it('cancels a run once, and keeps the button busy until the page knows', async () => {
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body: { name: 'Endless', systemPrompt: 'x' } }))
      .body
    model.script({ tokens: words(0, 3), end: 'hang' })
    const body = { message: 'Go', background: true }
    const { executionId } = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body })).body
    const { page } = await visit(browser, owner, `/app/runs/${executionId}?tab=transcript`)
    await page.getByText('w2').first().waitFor()
    const cancel = page.getByRole('button', { name: 'Cancel the run' })
    const release = await holdBack(page, /\/trpc\/[^?]*executions\.get/)
    await cancel.click()
    await page.locator('#toasts').getByText('Run cancelled').waitFor()
    expect(await cancel.getAttribute('aria-busy')).toBe('true')
    await release()
    await cancel.waitFor({ state: 'detached' })
    await leave(page)
  })

  it('keeps the words of a stopped answer, with a note', async () => {
    const { page } = await visit(browser, owner)
    model.script({ tokens: words(0, 10), end: 'hang' })
    await sendMessage(page, 'Count')
    await expect.poll(() => lastAnswer(page)).toContain('w9')
    await page.getByRole('button', { name: 'Stop' }).press('Enter')
    await page.getByText('Stopped.', { exact: true }).waitFor()
    await composer(page).and(page.locator(':focus')).waitFor()
    await expectEachOnce(page, 10)
    await page.reload()
    await page.getByText('Stopped.', { exact: true }).waitFor()
    await expectEachOnce(page, 10)
    await leave(page)
  })

  it('reports a run that failed before its first word, also after a reload', async () => {
    const { page } = await visit(browser, owner)
    model.script({ error: { status: 400, message: 'No such thing' } })
    await sendMessage(page, 'Go')
    await page.getByText('The run failed.', { exact: true }).waitFor()
    await page.reload()
    await page.getByText('No such thing').waitFor()
    await page.getByText('The provider of the model did not answer as expected.').waitFor()
    await page.getByRole('button', { name: 'Try again' }).click()
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    await leave(page)
  })

  it('shows the warnings of a run and the times of messages after a reload', async () => {
    const url = `http://127.0.0.1:${await freePort()}/mcp`
    const { id: mcp } = (await request(server, 'POST', '/api/v1/mcps', { body: { name: 'Tickets', url } })).body
    const agent = { name: 'Helper', systemPrompt: 'x', mcpInstanceIds: [mcp] }
    const { id } = (await request(server, 'POST', '/api/v1/agents', { body: agent })).body
    const body = { message: 'Which tickets are open?' }
    const { chatId } = (await request(server, 'POST', `/api/v1/agents/${id}/execute`, { body })).body
    const { page } = await visit(browser, owner, `/app/chats/${chatId}`)
    await page.getByText('The MCP server "Tickets" cannot be used').waitFor()
    const year = String(new Date().getFullYear())
    const times = page.getByRole('log').locator('time')
    expect(await times.allTextContents()).toEqual([expect.stringContaining(year), expect.stringContaining(year)])
    await leave(page)
  })

  it('grows with its message in browsers that size no field by its content', async () => {
    const { page } = await visit(browser, owner)
    const box = composer(page)
    await box.waitFor()
    await page.evaluate(() => {
      CSS.supports = () => false
      document.querySelector<HTMLElement>('[data-composer]')?.style.setProperty('field-sizing', 'fixed')
    })
    const heightOf = () => box.evaluate((element) => element.clientHeight)
    const low = await heightOf()
    await box.fill('One\n'.repeat(6))
    await expect.poll(() => box.evaluate((element) => element.scrollHeight - element.clientHeight)).toBe(0)
    expect(await heightOf()).toBeGreaterThan(2 * low)
    await box.fill('')
    await expect.poll(heightOf).toBe(low)
    await leave(page)
  })

  it('locks a new message while it is sent, so that no later letter of it is lost', async () => {
    const { page } = await visit(browser, owner)
    const release = await holdBack(page, BEGINNING)
    await sendMessage(page, 'Hello')
    await page.getByRole('button', { name: 'Sending' }).waitFor()
    await page.keyboard.type(' again')
    expect(await composer(page).inputValue()).toBe('Hello')
    await release()
    await page.waitForURL('**/app/chats/*')
    await composer(page).fill('Next')
    // Its request would take the scripted answer of the next test.
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    await leave(page)
  })

  it('leaves a person alone who has gone to another page while a new message is sent', async () => {
    const { page } = await visit(browser, owner)
    const release = await holdBack(page, BEGINNING)
    await sendMessage(page, 'Later')
    await page.getByRole('button', { name: 'Sending' }).waitFor()
    await page.getByRole('link', { name: 'Agents', exact: true }).click()
    await page.getByRole('heading', { name: 'Agents' }).waitFor()
    await expect.poll(() => page.locator('.animate-pulse').count()).toBe(0)
    // The list of the page is read again once the message is sent.
    await Promise.all([page.waitForResponse(/\/trpc\/[^?]*agents\.list/), release()])
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))
    expect(new URL(page.url()).pathname).toBe('/app/agents')
    const [run] = (await request(server, 'GET', '/api/v1/executions?limit=1')).body.executions
    await page.goto(`/app/chats/${run.chatId}`)
    await expect.poll(() => lastAnswer(page)).toContain('A reply of the test model.')
    expect(await composer(page).inputValue()).toBe('')
    await leave(page)
  })

  it('shows a pasted image, not that of pasted text, and collapsed reasoning after a reload', async () => {
    const { page, complaints } = await visit(browser, owner)
    await composer(page).waitFor()
    /** Pastes an image, with texts of these types. Returns whether the browser itself pastes. */
    const paste = (name: string, types: string[]) =>
      composer(page).evaluate(
        (element, [base64, name, types]) => {
          const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))
          const clipboardData = new DataTransfer()
          clipboardData.items.add(new File([bytes], name, { type: 'image/png' }))
          for (const type of types) clipboardData.setData(type, 'x')
          return element.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }))
        },
        [DOT, name, types] as const,
      )
    // Cells of a spreadsheet, with their picture.
    expect(await paste('cells.png', ['text/plain', 'text/html'])).toBe(true)
    // A picture of a page, and a file, whose name is its text.
    expect(await paste('page.png', ['text/html'])).toBe(false)
    await page.getByRole('button', { name: 'Remove page.png' }).click()
    expect(await paste('dot.png', ['text/plain'])).toBe(false)
    await page.getByText('dot.png').waitFor()
    expect(await page.getByText('cells.png').count()).toBe(0)
    await page.getByLabel('Uploading').waitFor({ state: 'detached' })
    model.script({ tokens: ['<think>It is ', 'a dot.</think>', 'I see a dot.'] })
    await sendMessage(page, 'What is this?')
    await expect.poll(() => lastAnswer(page)).toContain('I see a dot.')
    await page.reload()
    await expect.poll(() => lastAnswer(page)).toContain('I see a dot.')
    const picture = page.getByRole('list', { name: 'Attachments' }).locator('img')
    await expect.poll(() => picture.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(1)
    // Pictures far above the visible part are not loaded.
    expect(await picture.getAttribute('loading')).toBe('lazy')
    expect(await page.getByText('It is a dot.').isVisible()).toBe(false)
    await page.getByText('Reasoning').click()
    await page.getByText('It is a dot.').waitFor()
    expect(complaints).toEqual([])
    await leave(page)
  })

  it('stays at its end if an answer cannot be read again, and reads it once the network is back', async () => {
    const { page } = await visit(browser, owner)
    const gate = Promise.withResolvers<void>()
    model.script({ tokens: ['A paragraph of an answer.\n\n'.repeat(99), gate.promise, 'The end.'] })
    await sendMessage(page, 'At length')
    await page.waitForURL('**/app/chats/*')
    await expect.poll(() => lastAnswer(page)).toContain('A paragraph')
    const unreachable = '**/trpc/*chats.messages*'
    await page.route(unreachable, (route) => route.fulfill({ status: 418 }))
    gate.resolve()
    const alert = page.getByRole('log').getByRole('alert')
    await alert.waitFor()
    expect(await lastAnswer(page)).toContain('The end.')
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))
    expect(await alert.evaluate((element) => element.getBoundingClientRect().bottom < innerHeight)).toBe(true)
    await page.unroute(unreachable)
    await page.evaluate(() => ['offline', 'online'].map((name) => window.dispatchEvent(new Event(name))))
    await alert.waitFor({ state: 'detached' })
    await leave(page)
  })

  it('starts a branch with an edited message, and both branches can be read', async () => {
    const { page } = await visit(browser, owner)
    model.script({ tokens: 'First answer.' }, { tokens: 'Second answer.' })
    await sendMessage(page, 'One')
    await expect.poll(() => lastAnswer(page)).toContain('First answer.')
    await page.locator('[data-turn=user]').hover()
    await page.getByRole('button', { name: 'Edit the message' }).click()
    const edited = page.getByLabel('Edit the message')
    await edited.fill('Two')
    page.once('dialog', (dialog) => void dialog.dismiss())
    await edited.press('Escape')
    await page.getByRole('button', { name: 'Send' }).first().click()
    await expect.poll(() => lastAnswer(page)).toContain('Second answer.')
    await page.getByRole('button', { name: 'Earlier branch' }).press('Enter')
    await expect.poll(() => lastAnswer(page)).toContain('First answer.')
    await page.getByRole('button', { name: 'Later branch' }).and(page.locator(':focus')).waitFor()
    await leave(page)
  })
})

describe.skipIf(!hasBrowser)('a chat while the server is killed', () => {
  it('keeps its text, each word once, reports the problem and continues', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'muster-browser-'))
    await using model = await startModelServer()
    const env = {
      DATA_DIR: folder,
      PORT: String(await freePort()),
      OPENAI_BASE_URL: model.baseUrl,
      LEASE_DURATION: '1',
    }
    const first = await spawnServer(folder, env)
    const browser = await launch()
    try {
      // The link from the first start leads into a chat.
      const [, link = ''] = /(http\S+\/app\/welcome#\S+)/.exec(first.out) ?? []
      const { page } = await visit(browser, { url: first.url, cookie: '' })
      await page.waitForURL('**/app/sign-in?returnTo=*')
      await page.goto(link)
      await page.getByRole('button', { name: 'Sign in' }).click()
      await page.getByRole('link', { name: 'Continue without a password' }).click()
      await composer(page).waitFor()
      model.script({ tokens: words(0, 30), end: 'hang' }, { tokens: ['Back ', 'again.'] })
      await sendMessage(page, 'Count')
      await expect.poll(() => lastAnswer(page)).toContain('w29')
      await first.stop('SIGKILL')
      await page.getByText('Reconnecting').waitFor()
      await using _second = await spawnServer(folder, env)
      await page.getByText('The run failed.', { exact: true }).waitFor()
      await expectEachOnce(page, 30)
      await sendMessage(page, 'And now?')
      await expect.poll(() => lastAnswer(page)).toContain('Back again.')
    } finally {
      await browser.close()
      await first.stop('SIGKILL')
      await rm(folder, { recursive: true, force: true })
    }
  })
})

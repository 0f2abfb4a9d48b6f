/**
 * Makes the pictures of docs/guides/console.md from the running console: a service on a temporary folder with agents,
 * runs and tasks, a scripted model, and Chromium (`CHROMIUM_PATH`). `npx node .config/console-pictures.ts`
 *
 * With `--all FOLDER` it makes pictures of every page in three widths and both themes, to look at after a change.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { type Browser, chromium, type Page } from 'playwright-core'
import { createLog } from '../src/lib/log.ts'
import { readSettings } from '../src/settings.ts'
import { startService } from '../src/start.ts'
import { startMcpServer } from '../test/support/mcp-server.ts'
import { startModelServer } from '../test/support/model-server.ts'

const { all } = parseArgs({ options: { all: { type: 'string' } } }).values
const target = all ?? join(import.meta.dirname, '../docs/images')

const folder = mkdtempSync(join(tmpdir(), 'muster-pictures-'))
const model = await startModelServer()
const mcp = await startMcpServer()
const settings = readSettings({
  DATA_DIR: folder,
  PORT: '0',
  LOG_LEVEL: 'error',
  OPENAI_BASE_URL: model.baseUrl,
  DEFAULT_MODEL: 'compatible/demo',
  ALLOW_PRIVATE_NETWORK: 'true',
  RATE_LIMIT: '6000/60',
})
const service = await startService(settings, createLog('error', process.stderr))

type Answer = {
  id: string
  chatId: string
  executionId: string
  organizationId: string
  profile: { organization: { id: string } }
}

async function call(method: string, path: string, body?: object): Promise<Answer> {
  const response = await fetch(service.url + path, {
    method,
    headers: { Authorization: `Bearer ${service.firstToken}`, 'Content-Type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`)
  return response.json() as Promise<Answer>
}

const ANSWER = `Three pull requests were merged since **2.3**:

| Change | Kind | Risk |
|---|---|---|
| Resume streams after a restart | Feature | Low |
| Refuse malformed filters | Fix | Medium |
| Cache prompts per space | Performance | Low |

Suggested notes:

1. **Streams resume.** A client that reconnects goes on behind its last event, even after a restart.
2. **Filters are checked.** A request with an unknown field is refused and names the field.

\`\`\`sh
npm install muster@2.4.0
\`\`\`
`

/** Fills the service with what an organization has after a week. */
async function fill() {
  const { profile } = await call('GET', '/api/v1/profile')
  const organization = profile.organization.id
  await call('PATCH', '/api/v1/profile', { name: 'Ada Lindqvist' })
  await call('PATCH', `/api/v1/organizations/${organization}`, { name: 'Northwind' })
  const { id: mcpId } = await call('POST', '/api/v1/mcps', {
    name: 'Issue tracker',
    mcpType: 'test',
    url: mcp.url,
    transport: 'streamable-http',
  })
  const agent = (name: string, role: string, description: string, more: object = {}) =>
    call('POST', '/api/v1/agents', {
      name,
      role,
      description,
      systemPrompt: `You are ${name}. ${description}`,
      visibility: 'organization',
      ...more,
    })
  const { id: researcher } = await agent('Researcher', 'Finds and reads sources', 'Collects facts, with their sources.')
  const { id: reviewer } = await agent('Code reviewer', 'Reads changes', 'Reviews pull requests and names their risks.')
  const { id: writer } = await agent('Release writer', 'Writes release notes', 'Writes notes that users understand.', {
    subagentIds: [researcher, reviewer],
    tags: ['writing', 'releases'],
    mcpInstanceIds: [mcpId],
    allowedTools: ['read_file', 'write_file', 'delegate_to_researcher', 'delegate_to_code-reviewer'],
    permissions: [{ tool: 'write_file', mode: 'ask' }],
  })
  await agent('Support triage', 'Sorts requests', 'Labels requests and answers the simple ones.', { tags: ['support'] })
  await agent('Data analyst', 'Answers questions with numbers', 'Reads tables and draws conclusions.', {
    tags: ['data'],
  })
  const { id: spaceId } = await call('POST', '/api/v1/spaces', { name: 'Release 2.4', visibility: 'organization' })
  const put = (path: string, content: string) =>
    call('PUT', `/api/v1/spaces/${spaceId}/files/content`, { path, content })
  await put('plan.md', '# Release 2.4\n\n- [x] Freeze on Monday\n- [ ] Notes by Wednesday\n- [ ] Ship on Friday\n')
  await put('notes/draft.md', '# Draft\n\nStreams resume after a restart.\n')
  await put('data/downloads.csv', 'day,downloads\n2026-11-20,1204\n2026-11-21,1310\n')

  model.script(
    {
      tokens: 'I look at the changes first. ',
      delay: 20,
      toolCalls: [{ id: 'a', name: 'read_file', input: { path: 'plan.md' } }],
    },
    {
      tokens: '',
      toolCalls: [
        { id: 'b', name: 'delegate_to_researcher', input: { message: 'Which changes were merged since 2.3?' } },
        { id: 'c', name: 'delegate_to_code-reviewer', input: { message: 'Which of them are risky?' } },
      ],
    },
    { tokens: 'Three pull requests were merged: streams resume, filters are checked, prompts are cached.', delay: 60 },
    { tokens: 'The change of filters may refuse requests that worked before. The others are safe.', delay: 45 },
    { tokens: ANSWER, delay: 8 },
  )
  const main = await call('POST', `/api/v1/agents/${writer}/execute`, {
    message: 'Write the release notes of version 2.4.',
    spaceId,
  })
  await call('PATCH', `/api/v1/chats/${main.chatId}`, { title: 'Release notes of 2.4' })
  for (const [id, message] of [
    [reviewer, 'Review the pull request about retries.'],
    [researcher, 'How do other services resume a stream?'],
    [researcher, 'Compare three queues for PostgreSQL.'],
  ] as const) {
    model.script({ tokens: 'Retries are bounded and honour `Retry-After`. One thing to change: the jitter.', delay: 5 })
    await call('POST', `/api/v1/agents/${id}/execute`, { message })
  }
  model.script({ error: { status: 400, message: 'The prompt was refused' } })
  await call('POST', `/api/v1/agents/${reviewer}/execute`, { message: 'Review the pull request about keys.' }).catch(
    () => {},
  )
  const notes = '# Muster 2.4\n\nStreams resume after a restart. Filters are checked.\n'
  model.script({ toolCalls: [{ id: 'd', name: 'write_file', input: { path: 'notes/2.4.md', content: notes } }] })
  const asking = await call('POST', `/api/v1/agents/${writer}/execute`, {
    message: 'Put the notes of 2.4 into the space.',
    spaceId,
    background: true,
  })
  const task = async (title: string, priority: string, assignTo: string | null, status?: string) => {
    const { id } = await call('POST', '/api/v1/tasks', { title, priority, assignTo })
    if (status) await call('PATCH', `/api/v1/tasks/${id}`, { status: 'in_progress' })
    if (status === 'completed') await call('PATCH', `/api/v1/tasks/${id}`, { status })
  }
  await task('Answer the security questionnaire', 'urgent', 'me')
  await task('Draft the announcement of 2.4', 'high', writer)
  await task('Collect questions from the forum', 'medium', researcher)
  await task('Check the upgrade guide', 'medium', null)
  await task('Review the change of filters', 'high', reviewer, 'in_progress')
  await task('Update the screenshots', 'low', 'me', 'completed')
  const { id: missionId } = await call('POST', '/api/v1/missions', {
    title: 'Morning triage',
    goal: 'Sort the requests of the night.',
    agentId: writer,
    schedule: { type: 'cron', value: '0 8 * * 1-5', timezone: 'Europe/Stockholm' },
  })
  model.script({ tokens: 'Twelve requests: nine are answered, three need a person.', delay: 5 })
  await call('POST', `/api/v1/missions/${missionId}/run`)
  await call('POST', '/api/v1/missions', {
    title: 'Weekly report',
    goal: 'Sum up the week.',
    agentId: researcher,
    schedule: { type: 'cron', value: '0 16 * * 5', timezone: 'Europe/Stockholm' },
  })
  await call('POST', '/api/v1/skills', {
    name: 'house-style',
    displayName: 'House style',
    description: 'How we write to users.',
    prompt: '# House style',
  })
  await call('POST', `/api/v1/organizations/${organization}/invitations`, {
    email: 'grace@example.com',
    role: 'member',
  })
  await call('POST', `/api/v1/organizations/${organization}/service-accounts`, { name: 'Pipeline', role: 'member' })
  await call('POST', '/api/v1/keys', { name: 'Laptop', expiresInDays: 90, scopes: ['agents:execute'] })
  return { writer, spaceId, missionId, mcpId, main, asking }
}

/** Opens the console by the link of the first start. */
async function enter(browser: Browser, width: number, colorScheme: 'light' | 'dark', height = 800): Promise<Page> {
  const context = await browser.newContext({
    baseURL: service.url,
    viewport: { width, height },
    colorScheme,
    locale: 'en-GB',
    reducedMotion: 'reduce',
    ...(cookies && { storageState: cookies }),
  })
  return context.newPage()
}

async function settle(page: Page) {
  await page.locator('h1').first().waitFor({ state: 'attached' })
  await page.waitForFunction(
    () => !document.querySelector('.animate-pulse') && document.querySelector('h1')?.textContent !== '…',
  )
  // The parts of a page that are read after others.
  await page.waitForTimeout(1_000)
  await page.evaluate(() => document.fonts.ready)
}

async function take(page: Page, name: string) {
  const session = await page.context().newCDPSession(page)
  const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 80 })
  await session.detach()
  writeFileSync(join(target, `${name}.webp`), Buffer.from(data, 'base64'))
}

let cookies: Awaited<ReturnType<ReturnType<Page['context']>['storageState']>> | undefined

try {
  const { writer, spaceId, missionId, main, asking } = await fill()
  mkdirSync(target, { recursive: true })
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM_PATH ?? '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars'],
  })
  const first = await enter(browser, 1200, 'light')
  await first.goto(`/app/welcome#${service.firstLink}`)
  await first.getByRole('button', { name: 'Sign in' }).click()
  await first.getByRole('link', { name: 'Continue without a password' }).click()
  await first.locator('[data-composer]').waitFor()
  cookies = await first.context().storageState()

  const pages: Record<string, string> = {
    'console-chat': `/app/chats/${main.chatId}`,
    'console-agent': `/app/agents/${writer}`,
    'console-run': `/app/runs/${main.executionId}`,
    'console-tasks': '/app/tasks',
    'console-approvals': '/app/approvals',
    ...(all && {
      new: '/app',
      agents: '/app/agents',
      runs: '/app/runs',
      chats: '/app/chats',
      asking: `/app/chats/${asking.chatId}`,
      'agent-new': '/app/agents/new',
      'agent-versions': `/app/agents/${writer}?tab=versions`,
      'run-transcript': `/app/runs/${main.executionId}?tab=transcript`,
      'run-events': `/app/runs/${main.executionId}?tab=events&seq=12`,
      missions: '/app/missions',
      mission: `/app/missions/${missionId}`,
      spaces: '/app/spaces',
      space: `/app/spaces/${spaceId}?file=plan.md`,
      'space-attached': `/app/spaces/${spaceId}?tab=attached`,
      'space-secrets': `/app/spaces/${spaceId}?tab=secrets`,
      skills: '/app/skills',
      mcps: '/app/mcps',
      usage: '/app/usage',
      nowhere: '/app/nowhere',
      ...Object.fromEntries(
        [
          ...['profile', 'keys', 'limits', 'organization', 'members', 'service-accounts', 'providers'],
          ...['secrets', 'policy', 'audit', 'webhooks'],
        ].map((name) => [`settings-${name}`, `/app/settings/${name}`]),
      ),
    }),
  }
  const looks = all
    ? [1440, 768, 375].flatMap((width) => (['light', 'dark'] as const).map((theme) => ({ width, theme })))
    : [{ width: 1280, theme: 'light' as const }]
  for (const { width, theme } of looks) {
    const page = await enter(browser, width, theme, width < 500 ? 740 : 760)
    for (const [name, path] of Object.entries(pages)) {
      await page.goto(path)
      await settle(page)
      await take(page, all ? `${name}-${width}-${theme}` : name)
    }
    await page.context().close()
  }
  await browser.close()
} finally {
  await service.stop()
  await model.close()
  await mcp[Symbol.asyncDispose]()
  rmSync(folder, { recursive: true, force: true })
}

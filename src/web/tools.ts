import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { AppError, badRequest } from '../errors.ts'
import { defineTool, type Tool, type ToolUser } from '../executions/engine/run/tools.ts'
import { excerpt } from '../lib/excerpt.ts'
import { scrubber } from '../lib/scrub.ts'
import { isTimezone } from '../lib/wall-clock.ts'
import { isHeaderName } from '../mcps/schema.ts'
import { fillIn, fillUrl, formsOf, isNotSent, mentionsIn, resolveSecrets } from '../secrets/resolve.ts'
import type { Page, PageRequest } from './page.ts'

const MAX_URL = 4_000
const MAX_RESULTS = 10
const MAX_HEADERS = 20

const currentTime = defineTool(
  'current_time',
  'Tells the current date and time.',
  z.object({
    timezone: z.string().max(100).optional().describe('IANA time zone, such as Europe/Berlin. Default: UTC'),
  }),
)

const webFetch = defineTool(
  'web_fetch',
  'Fetches a page of the web and returns its text as Markdown. For a long page it returns a section and the offset of the next one.',
  z.object({
    url: z.string().max(MAX_URL).describe('http or https address'),
    offset: z.int().min(0).default(0).describe('Offset of the first character'),
    headers: z
      .record(z.string().refine(isHeaderName), z.string().max(8_000))
      .refine((headers) => Object.keys(headers).length <= MAX_HEADERS)
      .optional()
      .describe(`Headers of the request. \${NAME} in a header, path or query stands for a secret`),
  }),
)

const webSearch = defineTool(
  'web_search',
  'Searches the web. Returns titles, addresses and excerpts. Fetch an address for its whole text.',
  z.object({
    query: z.string().trim().min(1).max(400),
    count: z.int().min(1).max(MAX_RESULTS).default(5).describe('Maximum number of results'),
  }),
)

/** Creates the tools that reach the web, and the clock (contract-2.md section 2.11). */
export function webTools(deps: Deps, user: ToolUser, hasForeignSkills: () => boolean): Tool[] {
  const { settings, clock, log } = deps
  return [
    currentTime(async ({ timezone = 'UTC' }) => describeTime(clock.now(), timezone)),
    webFetch(async ({ url, headers = {}, offset }, { signal }) => {
      await user.actor()
      const page = await fetchFor(deps, user, { url, headers, signal }, hasForeignSkills)
      const head = [page.title && `# ${page.title}`, `Address: ${page.url}`, page.isCut && '[Cut off after 2 MB]']
      return `${head.filter(Boolean).join('\n')}\n\n${page.text ? excerpt(page.text, offset) : NO_TEXT}`
    }),
    ...(settings.SEARCH_PROVIDER
      ? [
          webSearch(async ({ query, count }, { signal }) => {
            await user.actor()
            const { searchWeb } = await import('./search.ts')
            const results = await searchWeb(settings, query, count, signal).catch((error: unknown) => {
              if (error instanceof AppError) {
                log.warn({ executionId: user.row.id, reason: error.message }, 'a web search failed')
              }
              throw error
            })
            return { results }
          }),
        ]
      : []),
  ]
}

const NO_TEXT = '[The page has no text. It may be written by scripts, which are not run.]'

function describeTime(now: Date, timeZone: string): object {
  if (!isTimezone(timeZone)) throw badRequest('Invalid timezone. Expected an IANA time zone such as Europe/Berlin')
  const local = new Intl.DateTimeFormat('en-GB', { timeZone, dateStyle: 'full', timeStyle: 'long' }).format(now)
  return { utc: now.toISOString(), timezone: timeZone, local }
}

/**
 * Fetches a page, with secrets in headers, path and query (contract-2.md section 2.10). Follows no redirect with a
 * secret, and removes the secrets from the answer. If a secret must not be sent, warns and sends nothing.
 */
async function fetchFor(
  deps: Deps,
  { row, agent, warn }: ToolUser,
  { url, headers = {}, signal }: PageRequest,
  hasForeignSkills: () => boolean,
): Promise<Page> {
  const { fetchPage } = await import('./page.ts')
  const names = mentionsIn([url, ...Object.values(headers)])
  if (!names.length) return fetchPage(deps.settings, { url, headers, signal })
  const address = URL.parse(url)
  if (!address || /[${}]/.test(address.host)) throw badRequest('Invalid url. A secret may be in its path or query only')
  const { organizationId, spaceId } = row
  const isForeign = agent.organizationId !== organizationId || hasForeignSkills()
  const use = { organizationId, spaceId, url: address, writtenBy: null, isForeign }
  const values = await resolveSecrets(deps, use, names).catch((error: unknown) => {
    if (!isNotSent(error)) throw error
    warn('secret_not_allowed', `web_fetch: ${error.message}`)
    throw badRequest(`Nothing was fetched: ${error.message}`)
  })
  const filled = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, fillIn(value, values)]))
  const request = { url: fillUrl(address, values).href, headers: filled, signal, mayRedirect: false }
  const scrub = scrubber(formsOf(values.values()))
  const page = await fetchPage(deps.settings, request).catch((error: unknown) => {
    signal.throwIfAborted()
    // Any other error may repeat the address.
    throw badRequest(error instanceof AppError ? scrub(error.message, true) : 'The page could not be fetched')
  })
  return { ...page, url: address.href, title: scrub(page.title, false), text: scrub(page.text, page.isCut) }
}

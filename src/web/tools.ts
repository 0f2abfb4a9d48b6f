import { z } from 'zod'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import { defineTool, type Tool } from '../executions/engine/run/tools.ts'
import { excerpt } from '../lib/excerpt.ts'
import { isTimezone } from '../lib/wall-clock.ts'

const MAX_URL = 4_000
const MAX_RESULTS = 10

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
export function webTools({ settings, clock }: Deps): Tool[] {
  return [
    currentTime(async ({ timezone = 'UTC' }) => tellTime(clock.now(), timezone)),
    webFetch(async ({ url, offset }, { signal }) => {
      const { fetchPage } = await import('./page.ts')
      const page = await fetchPage(settings, { url, signal })
      const head = [page.title && `# ${page.title}`, `Address: ${page.url}`, page.isCut && '[Cut off after 2 MB]']
      return `${head.filter(Boolean).join('\n')}\n\n${excerpt(page.text, offset)}`
    }),
    ...(settings.SEARCH_PROVIDER
      ? [
          webSearch(async ({ query, count }, { signal }) => {
            const { searchWeb } = await import('./search.ts')
            return { results: await searchWeb(settings, query, count, signal) }
          }),
        ]
      : []),
  ]
}

function tellTime(now: Date, timeZone: string): object {
  if (!isTimezone(timeZone)) throw badRequest('Invalid timezone. Expected an IANA time zone such as Europe/Berlin')
  const local = new Intl.DateTimeFormat('en-GB', { timeZone, dateStyle: 'full', timeStyle: 'long' }).format(now)
  return { utc: now.toISOString(), timezone: timeZone, local }
}

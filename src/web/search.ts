import { setTimeout as sleep } from 'node:timers/promises'
import { decodeHTML } from 'entities'
import { badRequest } from '../errors.ts'
import { openNetwork } from '../lib/net/network.ts'
import { createProxyFor } from '../lib/net/proxies.ts'
import { asList, asObject, asText, type Fields } from '../lib/unknown.ts'
import type { Settings } from '../settings.ts'
import { delayIn, reasonOf, refusalOf } from './search-failures.ts'

// Web search through the provider that the operator configured (contract-2.md section 2.11).

/** Maximum duration of a search, with waits for the provider's limit of requests (ms). */
const TIMEOUT = 20_000
/** Maximum size of an answer, and maximum length of a text of a result. */
const MAX_BYTES = 2 * 1024 * 1024
const MAX_TEXT = 2_000
/** Maximum number of words that Brave takes. */
const MAX_WORDS = 50

export type Result = { title: string; url: string; text: string }

type SearchSettings = Pick<
  Settings,
  'SEARCH_PROVIDER' | 'SEARCH_API_KEY' | 'SEARCH_URL' | 'HTTP_PROXY' | 'HTTPS_PROXY' | 'NO_PROXY'
>

type Provider = {
  url: string
  request: (url: URL, key: string, query: string, count: number) => RequestInit
  /** Returns the results of an answer, or null if it has another form. Throws if they are missing for a reason. */
  results: (body: unknown) => readonly unknown[] | null
  toResult: (row: Fields) => Result
}

const toResult = ({ title, url, content }: Fields): Result => ({
  title: asText(title),
  url: asText(url),
  text: asText(content),
})

const resultsOf = (body: unknown): readonly unknown[] | null => {
  const { results } = asObject(body)
  return Array.isArray(results) ? results : null
}

const PROVIDERS: Readonly<Record<NonNullable<Settings['SEARCH_PROVIDER']>, Provider>> = {
  brave: {
    url: 'https://api.search.brave.com/res/v1/web/search',
    request(url, key, query, count) {
      url.searchParams.set('q', query.split(/\s+/).slice(0, MAX_WORDS).join(' '))
      url.searchParams.set('count', String(count))
      return { headers: { accept: 'application/json', 'x-subscription-token': key } }
    },
    // An answer without results of the web has no `web`.
    results: (body) => asList(asObject(asObject(body).web).results),
    toResult: ({ title, url, description }) => ({
      title: fromHtml(asText(title)),
      url: asText(url),
      text: fromHtml(asText(description)),
    }),
  },
  tavily: {
    url: 'https://api.tavily.com/search',
    request: (_, key, query, count) => ({
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify({ query, max_results: count }),
    }),
    results: resultsOf,
    toResult,
  },
  searxng: {
    url: '',
    request(url, key, query) {
      url.pathname = `${url.pathname.replace(/\/+$/, '').replace(/\/search$/, '')}/search`
      url.searchParams.set('q', query)
      url.searchParams.set('format', 'json')
      return { headers: { accept: 'application/json', ...(key && { authorization: `Bearer ${key}` }) } }
    },
    results(body) {
      const results = resultsOf(body)
      const failed = asList(asObject(body).unresponsive_engines).map((engine) => asList(engine).map(asText).join(': '))
      if (results?.length || !failed.length) return results
      throw badRequest(`SearXNG found nothing, because its search engines failed (${failed.join(', ').slice(0, 300)})`)
    },
    toResult,
  },
}

/** Returns the text of HTML. */
const fromHtml = (html: string): string => decodeHTML(html.replace(/<\/?[a-z][^>]{0,100}>/gi, ''))

/**
 * Searches the web. Waits for the provider's limit of requests if it is over in time. Throws 400 with the reason, and
 * with the setting to correct, if the provider does not answer with results. The query goes to the operator's provider
 * only.
 */
export async function searchWeb(
  settings: SearchSettings,
  query: string,
  count: number,
  signal: AbortSignal,
): Promise<Result[]> {
  const { SEARCH_PROVIDER: name = 'searxng', SEARCH_API_KEY: key = '', SEARCH_URL } = settings
  const provider = PROVIDERS[name]
  const url = new URL(SEARCH_URL ?? provider.url)
  const init = provider.request(url, key, query, count)
  const end = performance.now() + TIMEOUT
  const limit = AbortSignal.timeout(TIMEOUT)
  const network = openNetwork({ proxyFor: createProxyFor(settings), headersTimeout: TIMEOUT, bodyTimeout: TIMEOUT })
  try {
    const anySignal = AbortSignal.any([signal, limit])
    for (;;) {
      // A redirect would take the key elsewhere.
      const response = await network.fetch(url.href, { ...init, redirect: 'manual', signal: anySignal })
      const text = await readText(response)
      if (response.ok) return toResults(provider, JSON.parse(text), count)
      const delay = delayIn(response)
      if (delay === null || performance.now() + delay > end) throw refusalOf(name, response, text, { delay, key })
      await sleep(delay, null, { signal: anySignal })
    }
  } catch (error) {
    signal.throwIfAborted()
    if (limit.aborted) throw badRequest(`The search provider did not answer within ${TIMEOUT / 1000} s`)
    throw reasonOf(error)
  } finally {
    await network.close()
  }
}

function toResults({ results, toResult }: Provider, body: unknown, count: number): Result[] {
  const rows = results(body)
  if (!rows) throw badRequest('The search provider did not answer with results. The operator must correct SEARCH_URL')
  return rows
    .map((row) => toResult(asObject(row)))
    .filter(({ url }) => URL.canParse(url))
    .slice(0, count)
    .map(({ title, url, text }) => ({
      title: title.slice(0, 300),
      url: url.slice(0, 2_000),
      text: text.slice(0, MAX_TEXT),
    }))
}

async function readText({ body }: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body ?? []) {
    size += chunk.byteLength
    if (size > MAX_BYTES) throw badRequest('The answer of the search provider is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

import { badRequest } from '../errors.ts'
import { openNetwork } from '../lib/net/network.ts'
import { createProxyFor } from '../lib/net/proxies.ts'
import { asList, asObject, asText } from '../lib/unknown.ts'
import type { Settings } from '../settings.ts'

// Web search through the provider that the operator configured (contract-2.md section 2.11).

const TIMEOUT = 20_000
/** Maximum size of an answer, and maximum length of a text of a result. */
const MAX_BYTES = 2 * 1024 * 1024
const MAX_TEXT = 2_000

export type Result = { title: string; url: string; text: string }

type Request = { url: URL; init: RequestInit; rows: (body: unknown) => readonly unknown[]; text: string }

type Search = Pick<Settings, 'SEARCH_PROVIDER' | 'SEARCH_API_KEY' | 'SEARCH_URL'>

/** Returns the request of a search in the form of its provider. */
function requestOf(
  { SEARCH_PROVIDER, SEARCH_API_KEY = '', SEARCH_URL }: Search,
  query: string,
  count: number,
): Request {
  if (SEARCH_PROVIDER === 'brave') {
    const url = new URL(SEARCH_URL ?? 'https://api.search.brave.com/res/v1/web/search')
    url.search = new URLSearchParams({ q: query, count: String(count) }).toString()
    const headers = { accept: 'application/json', 'x-subscription-token': SEARCH_API_KEY }
    return { url, init: { headers }, rows: (body) => asList(asObject(asObject(body).web).results), text: 'description' }
  }
  const rows = (body: unknown) => asList(asObject(body).results)
  if (SEARCH_PROVIDER === 'tavily') {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${SEARCH_API_KEY}` }
    const init = { method: 'POST', headers, body: JSON.stringify({ query, max_results: count }) }
    return { url: new URL(SEARCH_URL ?? 'https://api.tavily.com/search'), init, rows, text: 'content' }
  }
  const url = new URL(`${(SEARCH_URL ?? '').replace(/\/+$/, '').replace(/\/search$/, '')}/search`)
  url.search = new URLSearchParams({ q: query, format: 'json' }).toString()
  const headers = { accept: 'application/json', ...(SEARCH_API_KEY && { authorization: `Bearer ${SEARCH_API_KEY}` }) }
  return { url, init: { headers }, rows, text: 'content' }
}

/**
 * Searches the web. Throws 400 with the reason if the provider does not answer with results. The query goes to the
 * operator's provider only.
 */
export async function searchWeb(
  settings: Settings,
  query: string,
  count: number,
  signal: AbortSignal,
): Promise<Result[]> {
  const { url, init, rows, text } = requestOf(settings, query, count)
  const limit = AbortSignal.timeout(TIMEOUT)
  const network = openNetwork({ proxyFor: createProxyFor(settings), headersTimeout: TIMEOUT, bodyTimeout: TIMEOUT })
  try {
    const anySignal = AbortSignal.any([signal, limit])
    // A redirect would take the key elsewhere.
    const response = await network.fetch(url.href, { ...init, redirect: 'manual', signal: anySignal })
    if (!response.ok) throw badRequest(`The search provider answered HTTP ${response.status}`)
    const body = await readJson(response)
    return rows(body)
      .slice(0, count)
      .flatMap((row) => {
        const { title, url, [text]: content } = asObject(row)
        if (!URL.canParse(asText(url))) return []
        const clean = asText(content).replace(/<\/?[a-z][^>]{0,100}>/gi, '')
        return { title: asText(title).slice(0, 300), url: asText(url).slice(0, 2_000), text: clean.slice(0, MAX_TEXT) }
      })
  } catch (error) {
    signal.throwIfAborted()
    if (limit.aborted) throw badRequest(`The search provider did not answer within ${TIMEOUT / 1000} s`)
    if (error instanceof SyntaxError) throw badRequest('The search provider did not answer with JSON')
    if (error instanceof TypeError) throw badRequest('The search provider could not be reached')
    throw error
  } finally {
    await network.close()
  }
}

async function readJson({ body }: Response): Promise<unknown> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body ?? []) {
    size += chunk.byteLength
    if (size > MAX_BYTES) throw badRequest('The answer of the search provider is too large')
    chunks.push(chunk)
  }
  return JSON.parse(Buffer.concat(chunks).toString())
}

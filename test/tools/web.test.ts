import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { availableParallelism } from 'node:os'
import type { Worker } from 'node:worker_threads'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it, test, vi } from 'vitest'
import type { Deps } from '../../src/deps.ts'
import type { ToolUser } from '../../src/executions/engine/run/tools.ts'
import { isPublicAddress } from '../../src/lib/net/addresses.ts'
import { readSettings, type Settings } from '../../src/settings.ts'
import { fetchPage } from '../../src/web/page.ts'
import { searchWeb } from '../../src/web/search.ts'
import { webTools } from '../../src/web/tools.ts'
import { FORBIDDEN_HOSTS } from '../support/forbidden-hosts.ts'
import { freePort } from '../support/free-port.ts'
import { callTool } from './lab.ts'

// The tools that reach the web (contract-2.md section 2.11).

type Handler = (response: ServerResponse, body: string, headers: IncomingHttpHeaders) => void

let http: Server
let origin = ''
/** Stands for the public internet. No other loopback address is allowed. */
const ALLOWED = '127.0.0.2'
const isAllowed = (address: string) => address === ALLOWED || isPublicAddress(address)
const pages = new Map<string, Handler>()
const requests: { method: string; url: string; headers: IncomingHttpHeaders; body: string }[] = []

beforeAll(async () => {
  http = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const { method = '', url = '', headers } = request
    requests.push({ method, url, headers, body })
    const page = pages.get(url.replace(/\?.*/, ''))
    if (page) page(response, body, headers)
    else response.writeHead(404).end()
  }).listen(0, '0.0.0.0')
  await once(http, 'listening')
  origin = `http://${ALLOWED}:${(http.address() as AddressInfo).port}`
})
afterAll(() => {
  http.closeAllConnections()
  http.close()
})

const settings = readSettings({ DATA_DIR: '/tmp' })
const signal = new AbortController().signal
const user = {} as ToolUser
const read = (path: string, options: { maxConversion?: number } = {}) =>
  fetchPage(settings, { url: path.startsWith('http') ? path : origin + path, signal }, { isAllowed, ...options })

/** Serves a page under a new path. */
let count = 0
function serve(content: string | Uint8Array, type = 'text/html; charset=utf-8', headers: object = {}): string {
  const path = `/page-${++count}`
  pages.set(path, (response) => response.writeHead(200, { 'content-type': type, ...headers }).end(content))
  return path
}

const PROSE = 'Muster runs the agents of an organization. '.repeat(20)

describe('web_fetch returns', () => {
  test('the main text of a page as Markdown, without its navigation and scripts', async () => {
    const path = serve(`<!doctype html><html><head><title>News – Site</title><script>alert(1)</script></head><body>
      <nav><a href="/home">Home</a></nav>
      <article><h1>News</h1><h2>First</h2><p>${PROSE}</p><p>See <a href="more?x=1">more</a>.</p>
      <ul><li>one</li><li>two</li></ul><pre><code>let a = 1</code></pre></article>
      <footer>Imprint</footer></body></html>`)
    const { title, text, url, isCut } = await read(path)
    expect([title, url, isCut]).toEqual(['News – Site', origin + path, false])
    expect(text).toContain('## First')
    expect(text).toContain(`[more](${origin}/more?x=1)`)
    expect(text).toMatch(/- +one\n- +two/)
    expect(text).toContain('```\nlet a = 1\n```')
    expect(text).not.toMatch(/alert|<\w/)
  })

  test('tables of data as tables, and those that arrange a page as paragraphs', async () => {
    const data = `<table><thead><tr><th>Name</th><th colspan="2">Price</th></tr></thead>
      <tr><td><p>A|B</p><p>C</p></td><td>1</td><td><a href="/x">2</a></td></tr></table>`
    const { text } = await read(serve(`<article><p>${PROSE}</p>${data}</article>`))
    expect(text).toContain(`| Name | Price | |
| --- | --- | --- |
| A\\|B C | 1 | [2](${origin}/x) |`)
    const column = `<td><p>${PROSE.repeat(2)}</p></td>`
    expect((await read(serve(`<table><tr>${column}${column}</tr><tr>${column}</tr></table>`))).text).not.toContain('|')
  })

  test('code that stands in a pre alone, with the name of its language', async () => {
    const code = '<div class="highlight-source-ts"><pre><span>a</span> &lt; 1<br>```\n  b</pre></div>'
    const { text } = await read(serve(`<p>${PROSE}</p>${code}<pre class="brush: sql">select 1\n</pre>`))
    expect(text).toContain('````ts\na < 1\n```\n  b\n````')
    expect(text).toContain('```sql\nselect 1\n```')
  })

  test('a page without a content type as HTML if it begins so, and else as text', async () => {
    const typeless = (content: string) => {
      const path = `/page-${++count}`
      pages.set(path, (response) => response.writeHead(200).end(content))
      return path
    }
    const { title, text } = await read(typeless(`<!doctype html><title>News</title><article><p>${PROSE}</p></article>`))
    expect([title, text]).toEqual(['News', PROSE.trim()])
    expect((await read(typeless('a <b>'))).text).toBe('a <b>')
  })

  test('a page that is one form, and the article beside a longer box', async () => {
    expect((await read(serve(`<body><form><p>${PROSE}</p></form></body>`))).text).toBe(PROSE.trim())
    const box = `<div class="newsletter"><p>${'Get our letter, once a week, or more. '.repeat(8)}</p></div>`
    const text = `<div class="entry-sidebar"><p>${PROSE}</p><p>${PROSE}</p></div>`
    expect((await read(serve(`<body>${text}${box}</body>`))).text).toContain(PROSE.trim())
  })

  test('a short page, or a fragment, as a whole', async () => {
    expect((await read(serve('<p>Hello <b>world</b></p>'))).text).toBe('Hello **world**')
    expect((await read(serve(''))).text).toBe('')
  })

  test('the likely reason why a page has no text', async () => {
    const deps = { settings: { ...settings, ALLOW_PRIVATE_NETWORK: true }, clock: { now: () => new Date() } } as Deps
    const tools = webTools(deps, { actor: async () => ({}) } as unknown as ToolUser, () => false)
    const url = origin + serve('<div id="root"></div><script>render()</script>')
    expect(await callTool(tools, 'web_fetch', { url })).toContain('may be written by scripts')
  })

  test('links that run scripts as plain text', async () => {
    const { text } = await read(serve(`<p>${PROSE}<a href="javascript:alert(1)">click</a></p>`))
    expect(text).toContain('click')
    expect(text).not.toContain('javascript:')
  })

  test.each([
    ['text/plain', 'Plain <b>'],
    ['application/json', '{"a": 1}'],
    ['application/vnd.api+json', '{"b": 2}'],
    ['text/csv', 'a,b'],
    ['', 'no type'],
  ])('the text of %s as it is', async (type, content) => {
    expect((await read(serve(content, type))).text).toBe(content)
  })

  test('pages in other encodings, compressed or not', async () => {
    const latin = Buffer.from(`<html><body><p>Zürich</p></body></html>`, 'latin1')
    expect((await read(serve(latin, 'text/html; charset=iso-8859-1'))).text).toBe('Zürich')
    const named = Buffer.from(
      '<html><head><meta charset="windows-1252"></head><body><p>Zürich</p></body></html>',
      'latin1',
    )
    expect((await read(serve(named, 'text/html'))).text).toBe('Zürich')
    const unnamed = Buffer.from('<p>Zürich</p>', 'latin1')
    expect((await read(serve(unnamed, 'text/html'))).text).toBe('Zürich')
    const marked = Buffer.from('\ufeff<p>Zürich</p>', 'utf16le')
    expect((await read(serve(marked, 'text/html'))).text).toBe('Zürich')
    const xml = Buffer.from('<?xml version="1.0" encoding="ISO-8859-1"?><a>Zürich</a>', 'latin1')
    expect((await read(serve(xml, 'application/xml'))).text).toContain('Zürich')
    const about = 'Zürich: write <meta charset="shift_jis">'
    expect((await read(serve(about, 'text/plain'))).text).toBe(about)
    expect((await read(serve(gzipSync('zipped'), 'text/plain', { 'content-encoding': 'gzip' }))).text).toBe('zipped')
  })

  test('the page behind a redirect, with its address', async () => {
    const target = serve('There', 'text/plain')
    pages.set('/from', (response) => response.writeHead(302, { location: target }).end())
    expect(await read('/from')).toMatchObject({ url: origin + target, text: 'There' })
  })

  test('the first 2 MB of an endless page', async () => {
    pages.set('/endless', (response) => {
      response.writeHead(200, { 'content-type': 'text/plain' })
      const more = () => {
        while (!response.destroyed && response.write('x'.repeat(65_536)));
      }
      response.on('drain', more)
      more()
    })
    const { text, isCut } = await read('/endless')
    expect([text.length, isCut]).toEqual([2 * 1024 * 1024, true])
  })

  test('a compressed bomb only up to 2 MB', async () => {
    const bomb = gzipSync(Buffer.alloc(50 * 1024 * 1024))
    const { text, isCut } = await read(serve(bomb, 'text/plain', { 'content-encoding': 'gzip' }))
    expect([text.length, isCut]).toEqual([0, true])
  })
})

/** Maximum duration of the conversion of a hostile page (ms). NIGHTLY=1 has the whole time of the service. */
const maxConversion = process.env.NIGHTLY === '1' ? 10_000 : 1_000

describe('web_fetch survives', () => {
  test.each([
    ['elements nested a hundred thousand deep', '<div>'.repeat(100_000)],
    ['a million attributes', `<p ${'a '.repeat(500_000)}>x</p>`],
    ['unclosed tags', '<a href="'.repeat(100_000)],
    ['a table in a table in a table', '<table><tr><td>'.repeat(20_000)],
    ['emphasis without an end', '<b><i>'.repeat(50_000)],
    ['a million links', '<a href=/>x</a>'.repeat(100_000)],
    ['broken entities', '&#xffffffff;&#0;&nope;'.repeat(50_000)],
  ])('%s', async (_, html) => {
    const page = await read(serve(html), { maxConversion }).catch((error) => error.message)
    expect(page).toEqual(typeof page === 'string' ? 'The page could not be converted' : expect.anything())
  })
})

test('web_fetch converts at most one page per processor at a time', async () => {
  let alive = 0
  let most = 0
  const count = (worker: Worker) => {
    most = Math.max(most, ++alive)
    worker.once('exit', () => alive--)
  }
  process.on('worker', count)
  try {
    const path = serve(`<p>${PROSE}</p>`)
    const pages = await Promise.all(Array.from({ length: 2 * availableParallelism() + 1 }, () => read(path)))
    expect(pages.every(({ text }) => text.startsWith('Muster runs'))).toBe(true)
    expect(most).toBeLessThanOrEqual(availableParallelism())
    expect(alive).toBe(0)
  } finally {
    process.off('worker', count)
  }
})

describe('web_fetch refuses', () => {
  it.each([...new Set(FORBIDDEN_HOSTS)])('the private address %s', async (host) => {
    const { port } = new URL(origin)
    const before = requests.length
    await expect(read(`http://${host}:${port}/`)).rejects.toThrow(
      /not allowed|Invalid url|could not be reached|unknown/,
    )
    expect(requests).toHaveLength(before)
  })

  test('a port that HTTP clients do not use, and names it', async () => {
    await expect(read(`http://${ALLOWED}:6000/`)).rejects.toThrow('The port is one that HTTP clients do not use')
  })

  test('a redirect to a private address', async () => {
    const { port } = new URL(origin)
    for (const [index, host] of ['127.0.0.1', 'localhost', '[::1]', '2130706433'].entries()) {
      pages.set(`/to-${index}`, (response) => response.writeHead(302, { location: `http://${host}:${port}/x` }).end())
      await expect(read(`/to-${index}`)).rejects.toThrow('The address is not allowed')
    }
    expect(requests.some(({ url }) => url === '/x')).toBe(false)
  })

  test('a name that resolves to a private address at its second lookup', async () => {
    const { port } = new URL(origin)
    let lookups = 0
    const lookup = (_: string, __: object, callback: (error: null, found: object[]) => void) => {
      lookups++
      callback(null, [{ address: lookups > 1 ? '127.0.0.1' : ALLOWED, family: 4 }])
    }
    pages.set('/again', (response) => response.writeHead(302, { location: '/secret', connection: 'close' }).end())
    pages.set('/secret', (response) => response.end('secret'))
    const url = `http://rebinding.example:${port}/again`
    await expect(fetchPage(settings, { url, signal }, { isAllowed, lookup: lookup as never })).rejects.toThrow(
      'The address is not allowed',
    )
  })

  test.each([
    ['file:///etc/passwd', 'Invalid url'],
    ['ftp://example.com/', 'Invalid url'],
    ['javascript:alert(1)', 'Invalid url'],
    ['http://user:pw@example.com/', 'Invalid url'],
    ['no address', 'Invalid url'],
  ])('%s', async (url, message) => {
    await expect(fetchPage(settings, { url, signal }, { isAllowed })).rejects.toThrow(message)
  })

  test('binary files, failed requests and endless redirects', async () => {
    await expect(read(serve(Buffer.from([0, 1, 2]), 'application/octet-stream'))).rejects.toThrow('The page is no text')
    await expect(read(serve(Buffer.from([0x25, 0, 1]), 'application/pdf'))).rejects.toThrow('(application/pdf)')
    await expect(read('/nothing')).rejects.toThrow('The server answered HTTP 404')
    pages.set('/loop', (response) => response.writeHead(302, { location: '/loop' }).end())
    await expect(read('/loop')).rejects.toThrow('it redirects too often')
  })

  test('requests with the reason of an API, but without a page of HTML', async () => {
    const refuse = (status: number, type: string, body: string, headers: object = {}) => {
      const path = `/refused-${++count}`
      pages.set(path, (response) => response.writeHead(status, { 'content-type': type, ...headers }).end(body))
      return expect(read(path)).rejects
    }
    const problem = '{"title":"Unknown field: quantty"}'
    await refuse(422, 'application/problem+json', problem).toThrow(`The server answered HTTP 422: ${problem}`)
    await refuse(400, 'text/plain', ` ${'é'.repeat(2_000)}`).toThrow(/HTTP 400: é{1000}$/)
    await refuse(404, 'text/html', '<h1>Not found</h1>').toThrow(/HTTP 404$/)
    await refuse(403, 'text/html', '<h1>Wait</h1>', { 'cf-mitigated': 'challenge' }).toThrow(
      /403: it admits browsers only$/,
    )
  })

  test('web_fetch refuses to continue after the call was stopped', async () => {
    pages.set('/hang', () => {})
    const stopped = new AbortController()
    const page = fetchPage(settings, { url: `${origin}/hang`, signal: stopped.signal }, { isAllowed })
    stopped.abort(new Error('stopped'))
    await expect(page).rejects.toThrow('stopped')
  })
})

describe('web_search', () => {
  const searching = (provider: string, path: string): Settings =>
    readSettings({ DATA_DIR: '/tmp', SEARCH_PROVIDER: provider, SEARCH_API_KEY: 'key-s', SEARCH_URL: origin + path })
  const row = { title: 'T', url: 'https://example.com/' }

  test.each([
    ['brave', '/brave', { web: { results: [{ ...row, description: 'Men&#x27;s <strong>a</strong> &amp; b' }] } }],
    ['tavily', '/tavily', { results: [{ ...row, content: "Men's a & b", score: 1 }] }],
    [
      'searxng',
      '/search',
      {
        results: [
          { title: 'bad', url: 'x' },
          { ...row, content: "Men's a & b" },
        ],
      },
    ],
  ])('asks %s in its form', async (provider, path, answer) => {
    pages.set(path, (response) => response.end(JSON.stringify(answer)))
    const base = provider === 'searxng' ? '/?language=de' : path
    const results = await searchWeb(searching(provider, base), 'a & b', 1, signal)
    expect(results).toEqual([{ ...row, text: "Men's a & b" }])
    const { method, url, headers, body } = requests.at(-1)!
    const expected = {
      brave: ['GET', '/brave?q=a+%26+b&count=1', ''],
      tavily: ['POST', '/tavily', '{"query":"a & b","max_results":1}'],
      searxng: ['GET', '/search?language=de&q=a+%26+b&format=json', ''],
    }[provider]
    expect([method, url, body]).toEqual(expected)
    expect(headers[provider === 'brave' ? 'x-subscription-token' : 'authorization']).toContain('key-s')
  })

  test('keeps tags in the texts of providers that answer with plain text', async () => {
    const text = 'Use <div> & <p>, not &lt;'
    pages.set('/plain', (response) => response.end(JSON.stringify({ results: [{ ...row, content: text }] })))
    expect(await searchWeb(searching('tavily', '/plain'), 'x', 1, signal)).toEqual([{ ...row, text }])
  })

  test('sends Brave no more words than it takes', async () => {
    pages.set('/words', (response) => response.end('{"type":"search"}'))
    expect(await searchWeb(searching('brave', '/words'), 'a '.repeat(60), 1, signal)).toEqual([])
    expect(new URL(requests.at(-1)!.url, origin).searchParams.get('q')).toBe('a '.repeat(50).trim())
  })

  test('waits for a limit of requests that is over soon', async () => {
    let left = 2
    pages.set('/busy', (response) => {
      if (left--) response.writeHead(429, { 'retry-after': '0.1' }).end('{"error":{"code":"RATE_LIMITED"}}')
      else response.end(JSON.stringify({ web: { results: [{ ...row, description: 'a' }] } }))
    })
    expect(await searchWeb(searching('brave', '/busy'), 'x', 1, signal)).toEqual([{ ...row, text: 'a' }])
  })

  const brave = (status: number, detail: string, code: string) =>
    JSON.stringify({ type: 'ErrorResponse', error: { id: '1', status, detail, code, meta: { plan: 'Free' } } })
  const tavily = (error: string) => JSON.stringify({ detail: { error } })
  const ofMonth = { 'x-ratelimit-remaining': '1, 0', 'x-ratelimit-reset': '1, 1419704' }
  const moved = { location: 'https://search.example/search?q=x' }

  test.each([
    ['brave', 422, brave(422, 'Invalid token', 'SUBSCRIPTION_TOKEN_INVALID'), {}, /: Invalid token\. .*SEARCH_API_KEY/],
    ['brave', 429, brave(429, 'Limit exceeded', 'QUOTA_LIMITED'), ofMonth, /: Limit exceeded\. The quota is used up/],
    ['brave', 429, '', { 'retry-after': '40' }, /limit of requests is reached: try again in \d\d s/],
    [
      'tavily',
      401,
      tavily('Unauthorized: invalid key-s.'),
      {},
      /HTTP 401: Unauthorized: invalid \*\*\*\. .*SEARCH_API_KEY/,
    ],
    [
      'tavily',
      432,
      tavily('This request exceeds your plan'),
      {},
      /HTTP 432: This request exceeds your plan\. The quota/,
    ],
    ['tavily', 400, tavily('Query is invalid.'), {}, /HTTP 400: Query is invalid$/],
    ['searxng', 403, '<!doctype html><title>403 Forbidden</title>', {}, /HTTP 403\. .*allow json in search\.formats/],
    ['searxng', 404, 'not found', {}, /HTTP 404\. The operator must correct SEARCH_URL/],
    ['searxng', 301, '', moved, /set SEARCH_URL to .* at https:\/\/search\.example$/],
    ['searxng', 200, '<html>', {}, /did not answer with JSON\. The operator must correct SEARCH_URL/],
    ['searxng', 200, '{"ok":true}', {}, /did not answer with results\. The operator must correct SEARCH_URL/],
    [
      'searxng',
      200,
      '{"results":[],"unresponsive_engines":[["duckduckgo","CAPTCHA"],["brave","too many requests"]]}',
      {},
      /its search engines failed \(duckduckgo: CAPTCHA, brave: too many requests\)/,
    ],
    ['tavily', 200, JSON.stringify({ text: 'x'.repeat(3 * 1024 * 1024) }), {}, /too large/],
  ])(
    'says what the operator has to do after an answer of %s with %i',
    async (provider, status, body, headers, text) => {
      const base = `/refusal-${++count}`
      const path = provider === 'searxng' ? `${base}/search` : base
      pages.set(path, (response) => response.writeHead(status, headers).end(body))
      await expect(searchWeb(searching(provider, base), 'x', 1, signal)).rejects.toThrow(text)
      expect(requests.filter(({ url }) => url.startsWith(path))).toHaveLength(1)
    },
  )

  test('logs a failure once, without the query and the key', async () => {
    const away = { ...searching('tavily', ''), SEARCH_URL: `http://127.0.0.1:${await freePort()}/` }
    const warn = vi.fn()
    const searcher = { row: { id: 'exe_1' }, actor: async () => ({}) } as unknown as ToolUser
    const tools = webTools({ settings: away, log: { warn } } as unknown as Deps, searcher, () => false)
    await expect(callTool(tools, 'web_search', { query: 'secret plan' })).rejects.toThrow('(ECONNREFUSED)')
    const reason = expect.stringMatching(/could not be reached.*SEARCH_URL/)
    expect(warn.mock.calls).toEqual([[{ executionId: 'exe_1', reason }, 'a web search failed']])
  })

  test('exists when a provider is configured, which needs its key or address', () => {
    const names = (of: Settings) => webTools({ settings: of } as Deps, user, () => false).map(({ name }) => name)
    expect(names(settings)).toEqual(['current_time', 'web_fetch'])
    expect(names(searching('brave', ''))).toContain('web_search')
    expect(() => readSettings({ SEARCH_PROVIDER: 'brave' })).toThrow('SEARCH_API_KEY')
    expect(() => readSettings({ SEARCH_PROVIDER: 'searxng' })).toThrow('SEARCH_URL')
  })
})

test('current_time returns the time in a time zone', async () => {
  const clock = { now: () => new Date('2026-07-01T12:00:00Z') }
  const tools = webTools({ settings, clock } as Deps, user, () => false)
  expect(await callTool(tools, 'current_time', { timezone: 'Europe/Berlin' })).toMatchObject({
    utc: '2026-07-01T12:00:00.000Z',
    local: expect.stringContaining('14:00:00'),
  })
  expect(await callTool(tools, 'current_time')).toMatchObject({ timezone: 'UTC' })
  await expect(callTool(tools, 'current_time', { timezone: 'Mars' })).rejects.toThrow('Invalid timezone')
})

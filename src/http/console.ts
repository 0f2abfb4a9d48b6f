import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { basePath, type Settings } from '../settings.ts'
import { type Encoding, encodingFor } from './compress.ts'
import { names } from './conditional.ts'
import { sendPage } from './docs.ts'
import { noSuchPath } from './no-such-path.ts'

// The console (contract-2.md section 7): static files built by .config/guard.js, and one page for every path.

const BUILT = new URL('../../dist/console/', import.meta.url)

/** Returns whether the console was built. */
export const isBuilt = (): boolean => existsSync(new URL('index.html', BUILT))

const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  woff2: 'font/woff2',
}

const ENDINGS: Record<Encoding, string> = { br: '.br', gzip: '.gz' }

/** Returns the policy of contract-2.md section 7.8. */
const policy = (nonce: string): string =>
  [
    "default-src 'self'",
    "script-src 'self'",
    `style-src-elem 'self' 'nonce-${nonce}'`,
    "style-src-attr 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "connect-src 'self'",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
  ].join('; ')

const ASSET = /^\/app\/assets\/([\w-]+(?:\.[\w-]+)*\.(\w+))$/

/**
 * Answers paths under `/app`: a cached file of the console, or its page. Throws 404 for an unknown file. Without a
 * built console every path gives a page (503) with instructions for building it.
 */
export async function sendConsole(
  settings: Settings,
  path: string,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  if (path.startsWith('/app/assets/')) return sendAsset(path, req, res)
  if (!isBuilt()) return sendMissing(res)
  const nonce = randomBytes(16).toString('base64')
  const base = basePath(settings)
  const page = (await readFile(new URL('index.html', BUILT), 'utf8'))
    .replaceAll('__NONCE__', nonce)
    .replaceAll('__BASE__', base)
    .replaceAll('"./assets/', `"${base}/app/assets/`)
  // The page is never cached, because its nonce is valid once.
  sendPage(res, page, policy(nonce), 'no-store')
}

async function sendAsset(path: string, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const [, name = '', ending = ''] = ASSET.exec(path) ?? []
  const type = Object.hasOwn(TYPES, ending) && TYPES[ending]
  if (!type) throw noSuchPath()
  const encoding = encodingFor(req.headers['accept-encoding'])
  const file = new URL(`assets/${name}${encoding ? ENDINGS[encoding] : ''}`, BUILT)
  const bytes = await readFile(file).catch(() => {
    throw noSuchPath()
  })
  const etag = `"${name}${encoding ? `.${encoding}` : ''}"`
  const headers = {
    'Cache-Control': 'public, max-age=31536000, immutable',
    ETag: etag,
    Vary: 'Accept-Encoding',
  }
  const known = req.headers['if-none-match']
  if (known !== undefined && names(known, etag)) return void res.writeHead(304, headers).end()
  res.writeHead(200, {
    ...headers,
    'Content-Type': type,
    'Content-Length': bytes.length,
    ...(encoding && { 'Content-Encoding': encoding }),
  })
  res.end(bytes)
}

const MISSING = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Muster · the console is not built</title>
<h1>The console is not built</h1>
<p>The API works. To build the console, install all packages and start the server again:</p>
<pre>npm ci
npm start</pre>
<p>The first lines of the start say why a build failed.</p>
</html>
`

function sendMissing(res: ServerResponse): void {
  res.writeHead(503, {
    'Content-Type': 'text/html; charset=utf-8',
    'Content-Length': Buffer.byteLength(MISSING),
    'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
    'Cache-Control': 'no-store',
    'Retry-After': '60',
  })
  res.end(MISSING)
}

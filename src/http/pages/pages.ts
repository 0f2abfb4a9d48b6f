import { hash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { basePath, type Settings } from '../../settings.ts'
import { returnPath } from '../return-to.ts'
import { explainProblem } from './problems.ts'
import * as views from './views.ts'

// The pages around signing in (contract-2.md section 3), without a framework. The API offers everything that they do.

/** The browser loads from and sends to this service only, and shows the pages in no frame. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const PAGES: Readonly<Record<string, (view: views.View) => string>> = {
  '/app/sign-in': views.signIn,
  '/app/welcome': views.welcome,
  '/app/accept': views.accept,
  '/app/forgot': views.forgot,
  '/app/password': views.password,
  '/app/account': views.account,
}

const ASSETS: Readonly<Record<string, string>> = {
  '/app/pages/pages.css': 'text/css; charset=utf-8',
  '/app/pages/pages.js': 'text/javascript; charset=utf-8',
}

const SECURITY = {
  'Content-Security-Policy': POLICY,
  // The URL of a page may contain a path to return to.
  'Referrer-Policy': 'no-referrer',
  'X-Frame-Options': 'DENY',
}

/** Answers with a page around signing in, or with one of its files. Returns false for every other path. */
export async function sendPages(
  settings: Settings,
  path: string,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<boolean> {
  const plain = path.length > 1 ? path.replace(/\/$/, '') : path
  const type = Object.hasOwn(ASSETS, plain) && ASSETS[plain]
  if (type) {
    const text = await readFile(new URL(`assets/${plain.slice('/app/pages/'.length)}`, import.meta.url), 'utf8')
    send(req, res, text, type)
    return true
  }
  const page = Object.hasOwn(PAGES, plain) && PAGES[plain]
  if (!page) return false
  const base = basePath(settings)
  const query = new URLSearchParams((req.url ?? '').split('?')[1])
  const html = page({
    base,
    returnTo: returnPath(query.get('returnTo'), base),
    problem: explainProblem(query.get('problem')),
    provider: settings.OIDC_CLIENT_ID ? settings.OIDC_NAME : null,
  })
  send(req, res, html, 'text/html; charset=utf-8')
  return true
}

function send(req: IncomingMessage, res: ServerResponse, text: string, type: string): void {
  const headers = {
    'Cache-Control': 'no-cache',
    ETag: `"${hash('sha256', text, 'base64url').slice(0, 22)}"`,
    ...SECURITY,
  }
  if (req.headers['if-none-match'] === headers.ETag) {
    res.writeHead(304, headers).end()
    return
  }
  res.writeHead(200, { ...headers, 'Content-Type': type, 'Content-Length': Buffer.byteLength(text) }).end(text)
}

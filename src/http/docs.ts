import { readFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import swaggerUi from 'swagger-ui-dist/package.json' with { type: 'json' }
import { sourceHash } from '../lib/source-hash.ts'
import { noSuchPath } from './no-such-path.ts'

/** Files of the page, all from this server. */
const ASSETS: Record<string, string> = {
  'swagger-ui.css': 'text/css; charset=utf-8',
  'swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
}

const STYLE = `
:root { color-scheme: light dark; }
body { margin: 0; }
html.dark-mode body { background: #1c2022; }
.swagger-ui .wrapper { max-width: 68rem; }
.swagger-ui .info { margin: 2.5rem 0 1.5rem; }
.swagger-ui .scheme-container { background: none; box-shadow: none; margin: 0; padding: 0 0 1rem; }
.swagger-ui :is(.servers, .servers-title, .response-col_links, .response-control-media-type__accept-message) {
  display: none;
}
.swagger-ui .header-col { color: inherit; }
#signed-in { max-width: 68rem; margin: 1rem auto 0; padding: 0 20px; font: 14px system-ui, sans-serif; }
html.dark-mode #signed-in { color: #e6e9ef; }
#signed-in[hidden] { display: none; }
`

// Requests go to the origin of the page, whatever PUBLIC_URL is, because the policy forbids any other.
const SCRIPT = `
const dark = matchMedia('(prefers-color-scheme: dark)')
const paint = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', paint)
paint()
const place = document.getElementById('organization')
const ask = async (path) => {
  const response = await fetch(path)
  return response.ok ? response.json() : null
}
const [spec, session] = await Promise.all([ask('openapi.json'), ask('auth/session')])
if (session) {
  document.getElementById('person').textContent = session.user.email
  const chosen = localStorage.getItem('muster.organization')
  for (const { id, name } of session.organizations) place.add(new Option(name, id, false, id === chosen))
  document.getElementById('signed-in').hidden = false
}
// Without a token, a request is that of the browser's session.
const requestInterceptor = (request) => {
  const { headers } = request
  if (!session || headers.Authorization) return request
  headers['X-Muster-Request'] = '1'
  if (place.value) headers['X-Organization'] ??= place.value
  return request
}
spec.servers = [{ url: new URL('..', location.href).pathname }]
// Swagger UI's own resolver reads the whole document again for each operation that is opened, which takes 10 s.
const valueAt = (path) => path.reduce((value, key) => value?.[key], spec)
const targetOf = (ref) => valueAt(ref.slice(2).split('/').map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~')))
const inline = (value, above) => {
  if (Array.isArray(value)) return value.map((item) => inline(item, above))
  if (value === null || typeof value !== 'object') return value
  const { $ref, ...rest } = value
  const entries = (object, refs) => Object.fromEntries(Object.entries(object).map(([key, item]) => [key, inline(item, refs)]))
  const target = typeof $ref === 'string' && $ref.startsWith('#/') && !above.includes($ref) && targetOf($ref)
  return target ? { ...entries(target, [...above, $ref]), ...entries(rest, above) } : entries(value, above)
}
const resolveSubtree = async (_, path) => ({ errors: [], spec: inline(valueAt(path), []) })
SwaggerUIBundle({
  spec,
  requestInterceptor,
  dom_id: '#reference',
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: 'none',
  plugins: [{ fn: { resolveSubtree } }],
})
`

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Muster · API reference</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css?${swaggerUi.version}">
<style>${STYLE}</style>
</head>
<body>
<p id="signed-in" hidden>Requests without a token act as <b id="person"></b> in
<label>the organization <select id="organization"></select></label></p>
<div id="reference"></div>
<script src="docs/swagger-ui-bundle.js?${swaggerUi.version}"></script>
<script type="module">${SCRIPT}</script>
</body>
</html>
`

/** The policy makes the browser refuse requests by Swagger UI or the document to other origins. */
const POLICY = [
  "default-src 'none'",
  `script-src 'self' ${sourceHash(SCRIPT)}`,
  `style-src 'self' ${sourceHash(STYLE)}`,
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

/**
 * Answers `/api/docs` (no `asset`) with the reference page, and `/api/docs/<asset>` with its files. Redirects
 * `/api/docs/` to the page. The page loads nothing from other origins (contract.md section 0). Throws 404 for an
 * unknown asset.
 *
 * Swagger UI comes without hundreds of packages, and asks no other server for fonts, telemetry or a proxy. It runs
 * under a policy without `unsafe-inline` or `unsafe-eval`. package.json disables its install counter (@scarf/scarf).
 */
export async function sendDocs(res: ServerResponse, asset?: string): Promise<void> {
  if (asset === undefined) return sendPage(res, PAGE, POLICY)
  if (asset === '') return void res.writeHead(302, { Location: '../docs', 'Cache-Control': 'no-cache' }).end()
  const type = Object.hasOwn(ASSETS, asset) && ASSETS[asset]
  if (!type) throw noSuchPath()
  const bytes = await readFile(new URL(asset, import.meta.resolve('swagger-ui-dist/package.json')))
  send(res, bytes, { 'Content-Type': type, 'Cache-Control': 'public, max-age=31536000, immutable' })
}

/** Sends a page with a policy. */
export const sendPage = (res: ServerResponse, page: string, policy: string, cacheControl = 'no-cache'): void =>
  send(res, page, {
    'Content-Type': 'text/html; charset=utf-8',
    'Cache-Control': cacheControl,
    'Content-Security-Policy': policy,
  })

function send(res: ServerResponse, body: string | Buffer, headers: Record<string, string>): void {
  res.writeHead(200, {
    'Content-Length': Buffer.byteLength(body),
    'Referrer-Policy': 'no-referrer',
    ...headers,
  })
  res.end(body)
}

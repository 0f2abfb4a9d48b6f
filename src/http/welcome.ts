import type { IncomingMessage, ServerResponse } from 'node:http'
import { sourceHash } from '../lib/source-hash.ts'
import { basePath, type Settings } from '../settings.ts'
import { isBuilt } from './console.ts'
import { sendPage } from './docs.ts'

// Pages for `/` and for the address of a chat in a browser (contract-2.md section 1.21).

const CHAT = /^\/([\w-]+)\/spaces\/[\w-]+\/chats\/([\w-]+)$/

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --soft: #6b7280; --accent: #2f5fd0; }
@media (prefers-color-scheme: dark) { :root { --soft: #9aa3b2; --accent: #8ab0ff; } }
body { margin: 0; font: 16px/1.6 system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 4rem 1.5rem; }
h1 { font-size: 1.9rem; margin: 0; letter-spacing: -0.02em; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 0.5rem; }
p { margin: 0.5rem 0; }
.lead { color: var(--soft); font-size: 1.1rem; }
ul { list-style: none; margin: 1rem 0; padding: 0; border: 1px solid var(--line); border-radius: 10px; }
li { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: 0.7rem 1rem; }
li + li { border-top: 1px solid var(--line); }
li a { flex: 0 0 11rem; font-weight: 600; }
li span { color: var(--soft); flex: 1 1 14rem; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
pre { margin: 0.75rem 0; padding: 0.9rem 1rem; border: 1px solid var(--line); border-radius: 10px; overflow-x: auto; }
code { font: 0.875rem/1.5 ui-monospace, monospace; }
`

const POLICY = [
  "default-src 'none'",
  `style-src ${sourceHash(STYLE)}`,
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const ESCAPED: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}
/** Writes a text as HTML, in content and in attributes. */
export const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (character) => ESCAPED[character] ?? '')

/** Returns whether the client is a browser that requests a page rather than JSON. */
const wantsPage = ({ headers }: IncomingMessage): boolean => /\btext\/html\b/i.test(headers.accept ?? '')

/**
 * Redirects a browser that requests `/` or the address of a chat to the console. Without a console it sends a page with
 * links and instructions for getting a token. Neither reveals anything about any organization. Returns false for every
 * other request.
 */
export function sendWelcome(
  settings: Settings,
  path: string,
  req: IncomingMessage,
  res: ServerResponse,
  hasConsole = isBuilt(),
): boolean {
  const [, organization = '', chatId] = CHAT.exec(path) ?? []
  if (!wantsPage(req) || (path !== '/' && !chatId)) return false
  if (hasConsole) {
    const base = basePath(settings)
    const Location = `${base}/app${chatId ? `/chats/${chatId}?organization=${organization}` : ''}`
    res.writeHead(302, { Location, 'Cache-Control': 'no-cache' }).end()
    return true
  }
  const address = (settings.PUBLIC_URL ?? `http://${req.headers.host}`).replace(/\/$/, '')
  sendPage(res, page(settings, escapeHtml(address), chatId), POLICY)
  return true
}

function page({ NODE_ENV, TOKEN_PREFIX, PUBLIC_URL }: Settings, address: string, chatId: string | undefined): string {
  const base = PUBLIC_URL ? escapeHtml(new URL(PUBLIC_URL).pathname.replace(/\/$/, '')) : ''
  const links = [
    [`${base}/api/docs`, 'API reference', 'Every operation, to read and to try'],
    [`${base}/api/openapi.json`, 'OpenAPI document', 'To generate clients from'],
    ...(NODE_ENV === 'production'
      ? []
      : [[`${base}/graphql`, 'GraphiQL', 'The GraphQL schema and queries, with a token']]),
    [`${base}/readyz`, 'State', 'Whether this server is ready'],
  ]
  const request = chatId ? `/api/v1/chats/${chatId}/messages` : '/api/v1/agents'
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Muster</title>
<link rel="icon" href="data:,">
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>Muster</h1>
<p class="lead">${chatId ? 'This is the address of a chat. Read it through the API, with a token.' : 'This server runs your organization’s AI agents.'}</p>
<ul>
${links.map(([href, name, text]) => `<li><a href="${href}">${name}</a><span>${text}</span></li>`).join('\n')}
</ul>
<h2>Get a token</h2>
<p>The first start of the service prints one. Whoever operates the server makes others:</p>
<pre><code>npm run admin -- token create --user you@example.com --org default --name laptop</code></pre>
<p>With a token, <code>POST /api/v1/keys</code> makes more of your own.</p>
<h2>${chatId ? 'Read the chat' : 'Try it'}</h2>
<pre><code>curl ${address}${request} -H 'Authorization: Bearer ${TOKEN_PREFIX}_…'</code></pre>
</main>
</body>
</html>
`
}

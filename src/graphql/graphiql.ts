import { onceDone } from '../lib/once.ts'
import { sourceHash } from '../lib/source-hash.ts'

/** Initial text of GraphiQL's editor. Its default would name Muster, after the page title. */
const FIRST_QUERY = `# Ctrl-Enter runs the query.
query Agents {
  agents(first: 5) {
    totalCount
    nodes {
      id
      name
      model
    }
  }
}
`

const OPTIONS = { title: 'Muster', defaultQuery: FIRST_QUERY, shouldPersistHeaders: false }

const BAR_STYLE = `
:is(#sign-in, #place) { display: none; gap: 0.75rem; align-items: center; padding: 0.75rem 1rem; font: 14px system-ui, sans-serif;
  color: #fff; background: #3b4b68; }
:is(#sign-in, #place).asking { display: flex; }
#sign-in input { flex: 1; max-width: 36rem; padding: 0.4rem; font: 13px ui-monospace, monospace; }
body.no-focus-outline { display: flex; flex-direction: column; height: 100vh; margin: 0; }
#root { flex: 1; min-height: 0; }
`

const BAR = `<form id="sign-in">
  <label for="token">Token</label>
  <input id="token" type="password" autocomplete="off" spellcheck="false" placeholder="mst_…" required>
  <button>Load the schema</button>
  <span id="sign-in-reason" role="status"></span>
</form>
<div id="place"><label for="organization">Organization</label><select id="organization"></select></div>`

// GraphiQL stores tabs, queries and headers in localStorage; this replaces it with a storage that ends with the page.
// A person who has signed in needs no token. Requests of others wait for one, so that the schema loads as soon as there
// is one, and wait again after a 401.
const BAR_SCRIPT = `{
  const kept = new Map()
  let chosen = null
  try {
    chosen = localStorage.getItem('muster.organization')
    for (const name of Object.keys(localStorage)) if (name.startsWith('graphiql:')) localStorage.removeItem(name)
  } catch {}
  Object.defineProperty(window, 'localStorage', {
    value: {
      getItem: (name) => kept.get(name) ?? null,
      setItem: (name, value) => void kept.set(name, String(value)),
      removeItem: (name) => void kept.delete(name),
      clear: () => kept.clear(),
      key: (index) => [...kept.keys()][index] ?? null,
      get length() { return kept.size },
    },
  })
  const form = document.getElementById('sign-in')
  const field = document.getElementById('token')
  const reason = document.getElementById('sign-in-reason')
  let token = ''
  let waiting = []
  const ask = (text) => {
    token = ''
    reason.textContent = text
    form.classList.add('asking')
  }
  const given = () => token ? token : new Promise((resolve) => waiting.push(resolve))
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    token = field.value.trim().replace(/^Bearer /i, '')
    field.value = ''
    if (!/^[\\x21-\\x7e]+$/.test(token)) return ask('A token has no spaces')
    form.classList.remove('asking')
    for (const resolve of waiting.splice(0)) resolve(token)
  })
  const { fetch } = window
  const place = document.getElementById('organization')
  const enter = ({ organizations }) => {
    for (const { id, name } of organizations) place.add(new Option(name, id, false, id === chosen))
    if (organizations.length > 1) document.getElementById('place').classList.add('asking')
    return organizations.length > 0
  }
  let signedIn = fetch('api/auth/session').then(
    async (response) => response.ok && enter(await response.json()),
    () => false,
  )
  signedIn.then((isSignedIn) => isSignedIn || ask('It stays in this page until you close it'))
  window.fetch = async (resource, init) => {
    const headers = new Headers(init?.headers)
    if (headers.has('authorization')) return fetch(resource, init)
    if (await signedIn) {
      headers.set('x-muster-request', '1')
      if (!headers.has('x-organization')) headers.set('x-organization', place.value)
      const response = await fetch(resource, { ...init, headers })
      if (response.status !== 401) return response
      signedIn = false
      ask('You are signed out: sign in and reload, or use a token')
    }
    for (;;) {
      const tried = await given()
      headers.set('authorization', 'Bearer ' + tried)
      const response = await fetch(resource, { ...init, headers })
      if (response.status !== 401) return response
      if (token === tried) ask('The server does not accept this token')
    }
  }
}`

/**
 * Creates the page of GraphiQL, once. It asks for a token unless the browser has a session, loads the schema and stores
 * nothing in the browser. Its policy permits only these scripts and this server (contract.md section 0). Its editor,
 * Monaco, writes styles at run time and runs language services in blob workers.
 */
export const graphiqlPage = onceDone(async () => {
  const { renderGraphiQL } = await import('@graphql-yoga/render-graphiql')
  const root = '<div id="root"></div>'
  const html = renderGraphiQL(OPTIONS)
    .replace('</head>', () => `<style>${BAR_STYLE}</style></head>`)
    .replace(root, () => `${BAR}${root}<script>${BAR_SCRIPT}</script>`)
  const scripts = Array.from(html.matchAll(/<script>([\s\S]*?)<\/script>/g), ([, script = '']) => sourceHash(script))
  const policy = [
    "default-src 'none'",
    `script-src ${scripts.join(' ')}`,
    'worker-src blob:',
    "style-src 'unsafe-inline'",
    'font-src data:',
    'img-src data:',
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
  return { html, policy }
})

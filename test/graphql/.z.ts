import net from 'node:net'
import { auditServer } from 'graphql-http'
import { startServer } from '../support/server.ts'

const s = await startServer()
const results = await auditServer({
  url: s.url + '/graphql',
  fetchFn: (url: string, init: any = {}) =>
    fetch(url, { ...init, headers: { ...init.headers, authorization: `Bearer ${s.token}` } }),
})
for (const r of results)
  if (r.status !== 'ok') {
    console.log(r.status, r.name, (r as any).reason, await (r as any).response?.text?.().catch(() => ''))
  }
console.log(results.filter((r) => r.status === 'ok').length, results.length)
const raw = (head: string, body = '') =>
  new Promise<string>((res) => {
    const u = new URL(s.url)
    const c = net.connect(+u.port, u.hostname, () => c.write(head + body))
    let t = ''
    c.on('data', (d) => (t += d))
    c.on('close', () => res(t))
    setTimeout(() => c.destroy(), 500)
  })
console.log(
  await raw(`GET /graphql?query={__typename} HTTP/1.1\r\nHost: a b%%\r\nAuthorization: Bearer ${s.token}\r\n\r\n`),
)
console.log(
  await raw(
    `GET /graphql?query={__typename}&variables={bad HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${s.token}\r\n\r\n`,
  ),
)
console.log(
  await raw(`PUT /graphql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${s.token}\r\nContent-Length: 0\r\n\r\n`),
)
console.log(
  await raw(`HEAD /graphql HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${s.token}\r\nContent-Length: 0\r\n\r\n`),
)
console.log(
  await raw(
    `GET /graphql?query=mutation{deleteAgent(id:1){message}} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${s.token}\r\n\r\n`,
  ),
)
const post = (body: string, h = {}) =>
  fetch(s.url + '/graphql', {
    method: 'POST',
    body,
    headers: { authorization: `Bearer ${s.token}`, 'content-type': 'application/json', ...h },
  }).then(async (r) => console.log(r.status, (await r.text()).slice(0, 300)))
await post('[{"query":"{__typename}"}]')
await post('null')
await post('{')
await post('x'.repeat(2_000_000))
await post('{"query":"{__typename}"}', { 'content-type': 'text/plain' })
await post('{"query":"{__typename}","foo":1}')
await post('')
await post(JSON.stringify({ query: 'query($v:Int!){agents(limit:$v){nodes{id}}}', variables: { v: 'x' } }))
await post(JSON.stringify({ query: 'query($v:Int!){agent(id:"x"){executions(limit:$v){id}}}', variables: {} }))
await post(JSON.stringify({ query: 'query A{__typename} query B{__typename}' }))
await post(JSON.stringify({ query: 'query A{__typename} query B{__typename}', operationName: 'B' }))
console.log(s.logs.filter((l) => JSON.parse(l).level > 40).join(''))
await s[Symbol.asyncDispose]()

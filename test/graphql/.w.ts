import { startServer } from '../support/server.ts'
import { hostile } from './hostile.ts'

const s = await startServer()
const post = async (query: string) => {
  const r = await fetch(s.url + '/graphql', {
    method: 'POST',
    body: JSON.stringify({ query }),
    headers: {
      accept: 'application/graphql-response+json',
      authorization: `Bearer ${s.token}`,
      'content-type': 'application/json',
    },
  })
  return [r.status, await r.text()] as const
}
for (let i = 0; i < 200; i++) await post('{__typename}')
const cost = async (q: string, n: number) => {
  const a = process.cpuUsage()
  for (let i = 0; i < n; i++) await post(q)
  const b = process.cpuUsage(a)
  return (b.user + b.system) / n / 1000
}
const base = await cost('{__typename}', 300)
console.log('base', base)
for (const [name, q] of Object.entries(hostile)) {
  s.queries.length = 0
  const [st, t] = await post(q)
  const n = s.queries.length
  await cost(q, 20)
  const c = await cost(q, 40)
  console.log(st, n, (c / base).toFixed(1), name, '|', t.slice(0, 110))
}
await s[Symbol.asyncDispose]()

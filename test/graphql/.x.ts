import { startServer } from '../support/server.ts'

const s = await startServer()
const q = async (query: string, variables?: object, headers: object = {}) => {
  s.queries.length = 0
  const r = await fetch(s.url + '/graphql', {
    method: 'POST',
    headers: { authorization: `Bearer ${s.token}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ query, variables }),
  })
  console.log(r.status, r.headers.get('content-type'), await r.text(), s.queries.length)
}
await q('{__typename}')
await q('{agents{total nodes{id name}}}')
await q(
  'mutation($i:CreateAgentInput!){createAgent(input:$i){chatUrl agent{id name tags createdAt visibility versions{version agent{name createdAt}} executions{id}}}}',
  { i: { name: 'Ada', systemPrompt: 'p', tags: ['a'] } },
)
await q('mutation($i:CreateAgentInput!){createAgent(input:$i){chatUrl}}', { i: { systemPrompt: 'p', tags: ['a'] } })
await q('mutation{createAgent(input:{name:"",systemPrompt:"x"}){chatUrl}}')
await q('mutation{createAgent(input:{name:"x",systemPrompt:"x",visibility:secret}){chatUrl}}')
await q('{agent(id:"nope"){id}}')
await q('{agents(limit:0){nodes{id}}}')
await q('{agents(limit:"x"){nodes{id}}}')
await q('{nope}')
await q('{nope')
await q('{nope}', {}, { accept: 'application/graphql-response+json' })
await q('{agents{nodes{id}}}', {}, { authorization: 'Bearer nope' })
await q('{agents{nodes{id}}}', {}, { accept: 'text/plain' })
await q('{models{defaultModel models{id available}}}')
await q('{executions{nodes{id agentName agent{name}}}}')
const r = await fetch(s.url + '/graphql', { headers: { accept: 'text/html' } })
console.log(r.status, r.headers.get('content-type'), (await r.text()).length)
console.log(
  s.logs
    .filter((l) => !l.includes('"debug"'))
    .filter((l) => JSON.parse(l).level > 30)
    .join(''),
)
await s[Symbol.asyncDispose]()

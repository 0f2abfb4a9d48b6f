import { startServer } from '../support/server.ts'

const s = await startServer()
const q = async (query: string, variables?: object, headers: object = {}) => {
  s.queries.length = 0
  const r = await fetch(s.url + '/graphql', {
    method: 'POST',
    headers: { authorization: `Bearer ${s.token}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ query, variables }),
  })
  const t = await r.text()
  console.log(r.status, Object.fromEntries(r.headers), t, s.queries.length)
  return t
}
const a = JSON.parse(
  await q('mutation($i:CreateAgentInput!){createAgent(input:$i){agent{id}}}', {
    i: { name: 'Ada', systemPrompt: 'p', tags: ['a'] },
  }),
).data.createAgent.agent.id
const e = JSON.parse(
  await q(
    'mutation($i:ExecuteAgentInput!){executeAgent(input:$i){executionId status result execution{status result usage{inputTokens}}}}',
    { i: { id: a, message: 'hi' } },
  ),
).data.executeAgent.executionId
await q('{executions{nodes{id agentName agent{name executions(limit:1){id}} parent{id} children{id}}}}')
console.log(s.queries.join('\n'))
await q('{executions(limit:1){nodes{id agentName agent{name executions(limit:1){id}} parent{id} children{id}}}}')
console.log(s.queries.join('\n'))
await q(
  'subscription($e:ID!){executionEvents(executionId:$e){seq at __typename ... on TextDeltaEvent{text} ... on AssistantEvent{content{... on TextBlock{text}}} ... on ResultEvent{usage{inputTokens outputTokens}}}}',
  { e },
  { accept: 'text/event-stream' },
)
await q('subscription($e:ID!){executionEvents(executionId:$e){seq}}', { e: 'nope' }, { accept: 'text/event-stream' })
await q('subscription($e:ID!){executionEvents(executionId:$e){seq}}', { e }, {})
await q(
  'subscription($e:ID!){executionEvents(executionId:$e){seq}}',
  { e },
  { accept: 'text/event-stream', authorization: 'Bearer mst_x' },
)
await q('mutation($e:ID!){cancelExecution(id:$e){message}}', { e }, {})
await q('{agent(id:"' + a + '"){versions(limit:1){version} executions(limit:1){id}}}')
console.log(s.queries.join('\n'))
console.log(s.logs.filter((l) => JSON.parse(l).level > 30).join(''))
await s[Symbol.asyncDispose]()

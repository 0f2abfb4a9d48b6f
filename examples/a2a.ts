// A conversation with an agent by the Agent2Agent protocol.
//
//   TOKEN=mst_… npx node examples/a2a.ts
import { Role } from '@a2a-js/sdk'
import { JsonRpcTransport } from '@a2a-js/sdk/client'

const { MUSTER_URL: url = 'http://127.0.0.1:3000', TOKEN: token = '' } = process.env
const authorization = { Authorization: `Bearer ${token}` }

const { agents } = (await (await fetch(`${url}/api/v1/agents?limit=1`, { headers: authorization })).json()) as {
  agents: { id: string }[]
}
if (!agents[0]) throw new Error('Create an agent first')

const fetchImpl: typeof fetch = (address, init) => {
  const headers = new Headers(init?.headers)
  headers.set('Authorization', `Bearer ${token}`)
  return fetch(address, { ...init, headers })
}
const client = new JsonRpcTransport({ endpoint: `${url}/a2a/agents/${agents[0].id}`, fetchImpl })

const part = { content: { $case: 'text' as const, value: 'Hello' }, metadata: undefined, filename: '', mediaType: '' }
const message = {
  ...{ messageId: crypto.randomUUID(), contextId: 'example', taskId: '', role: Role.ROLE_USER, parts: [part] },
  ...{ metadata: undefined, extensions: [], referenceTaskIds: [] },
}
for await (const { payload } of client.sendMessageStream({
  ...{ message, configuration: undefined, metadata: undefined, tenant: '' },
})) {
  if (payload?.$case !== 'artifactUpdate') continue
  for (const { content } of payload.value.artifact?.parts ?? []) {
    if (content?.$case === 'text') process.stdout.write(content.value)
  }
}
console.log()

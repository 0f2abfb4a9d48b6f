// A conversation with an agent by the Agent2Agent protocol.
//
//   TOKEN=mst_… npx node examples/a2a.ts
import { Role } from '@a2a-js/sdk'
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from '@a2a-js/sdk/client'

const { MUSTER_URL: url = 'http://127.0.0.1:3000', TOKEN: token = '' } = process.env
const authorization = { Authorization: `Bearer ${token}` }

const { agents } = (await (await fetch(`${url}/api/v1/agents?limit=1`, { headers: authorization })).json()) as {
  agents: { id: string }[]
}
if (!agents[0]) throw new Error('There is no agent: run examples/chat.ts first, or create one in the console')

const fetchImpl: typeof fetch = (target, init) => {
  const headers = new Headers(init?.headers)
  headers.set('Authorization', `Bearer ${token}`)
  return fetch(target, { ...init, headers })
}
const address = `${url}/a2a/agents/${agents[0].id}`
const card = await new DefaultAgentCardResolver({ fetchImpl }).resolve(`${address}/.well-known/agent-card.json`, '')
// The card has the public address of the server, which may differ from the one here.
const supportedInterfaces = card.supportedInterfaces.map((each) => ({ ...each, url: address }))
const transports = [new JsonRpcTransportFactory({ fetchImpl })]
const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports }))
const client = await factory.createFromAgentCard({ ...card, supportedInterfaces })

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

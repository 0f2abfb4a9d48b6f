// A run over the Model Context Protocol, with its progress.
//
//   TOKEN=mst_… npx node examples/mcp.ts
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

const { MUSTER_URL: url = 'http://127.0.0.1:3000', TOKEN: token = '' } = process.env
const requestInit = { headers: { Authorization: `Bearer ${token}` } }

const client = new Client({ name: 'example', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } })
await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit }))

const { structuredContent } = await client.callTool({ name: 'list_agents', arguments: { limit: 1 } })
const [agent] = (structuredContent as { agents: { id: string }[] }).agents
if (!agent) throw new Error('There is no agent: run examples/chat.ts first, or create one in the console')

// A repetition with the same key joins the run.
const call = { id: agent.id, message: 'Hello', idempotencyKey: crypto.randomUUID() }
const { content } = await client.callTool(
  { name: 'run_agent', arguments: call },
  { onprogress: ({ message }) => console.error(message) },
)
for (const part of content) if (part.type === 'text') console.log(part.text)
await client.close()

// A turn of a chat with the transport that `useChat` uses, without a page.
//
//   TOKEN=mst_… npx node examples/ai-sdk.ts
import { DefaultChatTransport, readUIMessageStream, type UIMessage } from 'ai'

const { MUSTER_URL: url = 'http://127.0.0.1:3000', TOKEN: token = '' } = process.env
const headers = { Authorization: `Bearer ${token}` }

const { agents } = (await (await fetch(`${url}/api/v1/agents?limit=1`, { headers })).json()) as {
  agents: { id: string }[]
}
if (!agents[0]) throw new Error('There is no agent: run examples/chat.ts first, or create one in the console')

const transport = new DefaultChatTransport({ api: `${url}/api/v1/agents/${agents[0].id}/chat`, headers })
const messages: UIMessage[] = [{ id: '1', role: 'user', parts: [{ type: 'text', text: 'Hello' }] }]
const stream = await transport.sendMessages({
  chatId: crypto.randomUUID(),
  messages,
  trigger: 'submit-message',
  messageId: undefined,
  abortSignal: undefined,
})
let answer: UIMessage | undefined
for await (const message of readUIMessageStream({ stream })) answer = message
for (const part of answer?.parts ?? []) if (part.type === 'text') console.log(part.text)

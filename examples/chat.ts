// A chat in the terminal. Each line of input runs an agent, and its answer is streamed.
//
//   TOKEN=mst_… npx node examples/chat.ts
import { createInterface } from 'node:readline'
// Outside of this repository: from '@muster/client', see `npm run build:client`.
import { createClient } from '../src/sdk/index.ts'

const { MUSTER_URL: url = 'http://127.0.0.1:3000', TOKEN: token = '' } = process.env
const muster = createClient({ url, token })

/** Prints the events of a run, each once, also over a lost connection. */
function follow(executionId: string): Promise<void> {
  return new Promise((resolve, reject) => {
    muster.executions.events.subscribe(
      { executionId },
      {
        onData({ data: { event, data } }) {
          if (event === 'error') console.log(data.message)
          if (event === 'result') console.log(`\n(${data.usage.output_tokens} tokens)`)
          if (event !== 'message') return
          if (data.messageType === 'stream_event') process.stdout.write(data.delta.text)
          if (data.messageType === 'approval') console.log(`\n${data.name} waits for an approval`)
        },
        onComplete: resolve,
        onError: reject,
      },
    )
  })
}

const { agents } = await muster.agents.list.query({ search: 'Ada', limit: 1 })
const { id } = agents[0] ?? (await muster.agents.create.mutate({ name: 'Ada', systemPrompt: 'You are Ada.' }))
let sessionId: string | undefined

console.log('Say something to Ada. Ctrl+D ends the chat.')
for await (const message of createInterface({ input: process.stdin })) {
  if (!message.trim()) continue
  // The mutation accepts the run once. A reconnection repeats only the subscription.
  const run = await muster.agents.execute.mutate({ id, message, background: true, ...(sessionId && { sessionId }) })
  sessionId = run.sessionId
  await follow(run.executionId)
}

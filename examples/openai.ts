// A response in the background, streamed again behind the last event after the connection was cut.
//
//   TOKEN=mst_… npx node examples/openai.ts
import OpenAI from 'openai'

const { MUSTER_URL: url = 'http://127.0.0.1:3000', TOKEN: token = '' } = process.env
const client = new OpenAI({ baseURL: `${url}/openai/v1`, apiKey: token })

const { data: models } = await client.models.list()
const model = models[0]?.id
if (!model) throw new Error('There is no agent: run examples/chat.ts first, or create one in the console')

const stream = await client.responses.create({ model, input: 'Hello', background: true, stream: true })
let id = ''
let last = 0
for await (const event of stream) {
  if (event.type === 'response.created') ({ id } = event.response)
  last = event.sequence_number
  // As if the connection were lost here.
  if (event.type === 'response.in_progress') break
}
for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: last })) {
  if (event.type === 'response.output_text.delta') process.stdout.write(event.delta)
  if (event.type === 'response.completed') console.log(`\n(${event.response.usage?.output_tokens} tokens)`)
}

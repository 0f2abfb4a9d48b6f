// REST by a client that is generated from the OpenAPI document. `npm run build:rest-client` makes this one with
// oazapfts. Other languages have their own generators for the document at /api/openapi.json.
//
//   npm run build:rest-client
//   TOKEN=mst_… npx node examples/rest.ts
import { HttpError } from '@oazapfts/runtime'
import * as muster from '../dist/rest-client.ts'

const { MUSTER_URL = 'http://127.0.0.1:3000', TOKEN = '' } = process.env
muster.defaults.baseUrl = MUSTER_URL
muster.defaults.headers = { Authorization: `Bearer ${TOKEN}` }

const { id } = await muster.agentsCreate({ name: 'Ada', systemPrompt: 'You are Ada.', tags: ['example'] })

// A repetition with the same key starts no second run, and gets the same answer.
const idempotencyKey = crypto.randomUUID()
const first = await muster.agentsExecute(id, { message: 'Hello' }, { idempotencyKey })
const again = await muster.agentsExecute(id, { message: 'Hello' }, { idempotencyKey })
console.log(first.result, first.executionId === again.executionId)

const { task } = await muster.tasksCreate({ title: 'Write the release notes', priority: 'high', assignTo: id })
const { executionId } = await muster.tasksExecute(task.id)
const { execution } = await muster.executionsGet(executionId)
console.log(`${task.title}: ${execution.status} in ${execution.executionTime} ms`)

try {
  await muster.agentsGet('unknown')
} catch (error) {
  if (error instanceof HttpError) console.log(error.status, error.data.message)
}

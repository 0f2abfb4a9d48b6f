import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { Agent, Memory, VoltAgent } from '@voltagent/core'
import { LibSQLMemoryAdapter } from '@voltagent/libsql'
import { createPinoLogger } from '@voltagent/logger'
import { PostgreSQLMemoryAdapter } from '@voltagent/postgres'
import { honoServer } from '@voltagent/server-hono'

const { BENCH_FOLDER, DATABASE_URL, OPENAI_BASE_URL, PORT } = process.env
const compatible = createOpenAICompatible({ name: 'compatible', baseURL: OPENAI_BASE_URL })
// Storing a message takes a second connection while it holds one: with the usual ten, 16 requests at once wait for
// ever.
const storage = DATABASE_URL
  ? new PostgreSQLMemoryAdapter({ connection: DATABASE_URL, maxConnections: 220 })
  : new LibSQLMemoryAdapter({ url: `file:${BENCH_FOLDER}/voltagent.db` })
const memory = new Memory({ storage })
const agents = Array.from({ length: 10 }, (_, index) => {
  const id = `ada${index}`
  const instructions = 'You are a helpful librarian.'
  return [id, new Agent({ id, name: id, instructions, model: compatible('test-model'), memory })]
})

new VoltAgent({
  agents: Object.fromEntries(agents),
  logger: createPinoLogger({ name: 'bench', level: 'warn' }),
  server: honoServer({ port: Number(PORT) }),
})

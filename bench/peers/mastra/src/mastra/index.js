import { Mastra } from '@mastra/core'
import { Agent } from '@mastra/core/agent'
import { LibSQLStore } from '@mastra/libsql'
import { Memory } from '@mastra/memory'
import { PostgresStore } from '@mastra/pg'

const { BENCH_FOLDER, DATABASE_URL } = process.env
const storage = DATABASE_URL
  ? new PostgresStore({ id: 'bench', connectionString: DATABASE_URL })
  : new LibSQLStore({ id: 'bench', url: `file:${BENCH_FOLDER}/mastra.db` })
const model = { providerId: 'compatible', modelId: 'test-model', url: process.env.OPENAI_BASE_URL, apiKey: 'none' }
const agents = Array.from({ length: 10 }, (_, index) => {
  const id = `ada${index}`
  const instructions = 'You are a helpful librarian.'
  return [id, new Agent({ id, name: 'Ada', instructions, model, memory: new Memory() })]
})

export const mastra = new Mastra({ agents: Object.fromEntries(agents), storage })

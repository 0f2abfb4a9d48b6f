import { expect, it } from 'vitest'
import { startServer } from '../support/server.ts'
import { request } from '../support/rest.ts'
it('x', async () => {
  console.log(performance.now())
  await using server = await startServer()
  console.log(performance.now())
  console.log(await request(server, 'POST', '/api/v1/agents', { body: { name: 'A', systemPrompt: 'x' } }))
  console.log(await request(server, 'GET', '/api/v1/agents'))
  console.log(performance.now())
})

import { expect, test } from 'vitest'
import { createRunBytes, limitWithin } from '../../src/executions/engine/run/run-bytes.ts'
import { startModelServer } from '../support/model-server.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'

test('a run that exceeds MAX_RUN_BYTES for all runs fails with too_large, and others continue', async () => {
  const model = await startModelServer()
  await using server = await startServer({
    ...model.env,
    MAX_RUN_BYTES: `${1024 * 1024}`,
  })
  const body = { name: 'Ada', systemPrompt: 'S' }
  const { id } = (await request(server, 'POST', '/api/v1/agents', { body })).body
  const execute = () => request(server, 'POST', `/api/v1/agents/${id}/execute`, { body: { message: 'Hi' } })
  model.script({ tokens: Array.from({ length: 30 }, () => 'x'.repeat(50_000)) })
  const { status, body: failed } = await execute()
  expect([status, failed.code, failed.detail]).toEqual([500, 'too_large', expect.stringContaining('MAX_RUN_BYTES')])
  // Its memory is released.
  model.script({ tokens: ['x'.repeat(600_000)] })
  expect((await execute()).body.status).toBe('completed')
  model.script({ tokens: ['x'.repeat(600_000)] })
  expect((await execute()).body.status).toBe('completed')
  await model.close()
})

test('the run with the most text fails, and no other while it ends', () => {
  const runs = createRunBytes(100)
  const say = (text: string) => ({ messageType: 'stream_event', step: 1, delta: { type: 'text_delta', text } }) as const
  const [large, small] = [new AbortController(), new AbortController()]
  const [first, second] = [runs.open(large), runs.open(small)]
  runs.add(first, say('x'.repeat(80)))
  runs.add(second, say('x'.repeat(30)))
  runs.add(second, say('x'.repeat(30)))
  expect([large.signal.aborted, small.signal.aborted]).toEqual([true, false])
})

test('the text of all runs is limited by the memory of a container, and to 512 MiB elsewhere', () => {
  const gib = 1024 ** 3
  // Without a limit, Node returns 0 or the highest number of 64 bits.
  const limits = [gib / 4, gib, 64 * gib, 0, 2 ** 64, gib / 16].map((memory) => limitWithin(memory) / 1024 ** 2)
  expect(limits).toEqual([8, 32, 512, 512, 512, 8])
})

import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { createFolder } from '../support/folder.ts'
import { startModelServer } from '../support/model-server.ts'
import { runProgram } from '../support/process.ts'

const STEPS = ['Create an agent', 'stream the reply', 'Continue the session', 'List the runs']

test('the demo prints each call, continues its session, lists its runs, and cleans up', async () => {
  await using folder = await createFolder()
  const { code, out, err } = await runProgram('src/demo.ts', [], folder.path, { TMPDIR: folder.path })
  expect([code, err]).toEqual([0, ''])
  for (const step of STEPS) expect(out).toContain(step)
  expect(out.match(/^ {2}(GET|POST) \/api\/v1\/\S+$/gm)?.map((line) => line.trim())).toEqual([
    'POST /api/v1/agents',
    expect.stringMatching(/^POST \/api\/v1\/agents\/\w+\/execute$/),
    expect.stringMatching(/^POST \/api\/v1\/agents\/\w+\/execute$/),
    expect.stringMatching(/^GET \/api\/v1\/executions\?agentId=\w+$/),
    expect.stringMatching(/^GET \/api\/v1\/executions\/exec-\d+-\w+\/events$/),
  ])
  expect(out).toMatch(/Turn 1\.[\s\S]*Turn 2\./)
  expect(out.match(/completed +offline\/echo +\d+ ms/g)).toHaveLength(2)
  expect(out).not.toMatch(/\x1b|mst_/)
  expect(await readdir(folder.path)).toEqual([])
})

test('the demo uses a real model if the environment has one, and continues its session', async () => {
  await using folder = await createFolder()
  await using model = await startModelServer()
  const first = ['Words ', 'that ', 'come ', 'one ', 'by ', 'one.']
  model.script({ tokens: first, delay: 1 }, { tokens: 'You asked before.', delay: 1 })
  const env = { TMPDIR: folder.path, OPENAI_BASE_URL: model.baseUrl, PORT: 'ignored', DATABASE_URL: 'ignored' }
  const { code, out } = await runProgram('src/demo.ts', [], folder.path, env)
  expect(code).toBe(0)
  expect(out).toContain('\n  Words that come one by one.\n')
  expect(out).toMatch(/compatible\/test-model +\d+ ms +10 \+ 6/)
  const history = model.requests[1]?.body.messages.map(({ role, content }) => [role, content])
  expect(history?.slice(1, 3)).toEqual([
    ['user', expect.any(String)],
    ['assistant', first.join('')],
  ])
})

test('a failing demo prints the reason, exits with 1, and cleans up', async () => {
  await using folder = await createFolder()
  await using model = await startModelServer()
  model.fallback = { error: { status: 401, message: 'No such key' } }
  const { code, err } = await runProgram('src/demo.ts', [], folder.path, {
    TMPDIR: folder.path,
    OPENAI_BASE_URL: model.baseUrl,
  })
  expect([code, err]).toEqual([
    1,
    expect.stringMatching(/^\s+The demo failed\. Chat execution failed: .*No such key.*\n$/),
  ])
  expect(await readdir(folder.path)).toEqual([])
})

test.skipIf(process.platform === 'win32')('a demo whose reader has gone ends, and cleans up', async () => {
  await using folder = await createFolder()
  const demo = join(import.meta.dirname, '..', '..', 'src', 'demo.ts')
  const { stderr } = await promisify(execFile)('sh', ['-c', `"${process.execPath}" "${demo}" | true`], {
    env: { PATH: process.env.PATH, TMPDIR: folder.path },
  })
  expect(stderr).toBe('')
  expect(await readdir(folder.path)).toEqual([])
})

test.each([
  ['src/demo.ts', 'npm run demo takes no arguments'],
  ['bench/main.ts', 'Usage: npm run bench'],
  ['test/soak/main.ts', 'Usage: npm run test:soak'],
  ['.config/docs.ts', 'Usage: npm run docs:reference'],
  ['.config/schema.ts', 'Usage: npm run schema'],
])('%s refuses an unknown option with one sentence and no stack', async (program, sentence) => {
  await using folder = await createFolder()
  const { code, out, err } = await runProgram(program, ['--nope'], folder.path)
  expect([code, out]).toEqual([2, ''])
  expect(err).toContain(sentence)
  expect(err).not.toMatch(/^ +at /m)
})

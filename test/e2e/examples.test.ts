import { execFile, spawn, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { startModelServer } from '../support/model-server.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// The examples as their readers run them, each in its own process.

const ROOT = join(import.meta.dirname, '..', '..')

const model = await use(startModelServer())
const server = await use(startServer(model.env))

/** Runs a program with this input. Returns all of its output, including errors. */
async function run(name: string, input = '', program = process.execPath): Promise<string> {
  const env = { PATH: process.env.PATH, MUSTER_URL: server.url, TOKEN: server.token }
  const child = spawn(program, [join('examples', name)], { cwd: ROOT, env })
  child.stdin.end(input)
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
  return out + err
}

test('the chat streams an answer to each line, and continues one session', async () => {
  model.script({ tokens: ['Hello', ' there'] }, { tokens: ['Still ', 'here'] })
  expect((await run('chat.ts', 'Hi\n\nAre you there?\n')).split('\n').slice(1)).toEqual([
    'Hello there',
    expect.stringMatching(/^\(\d+ tokens\)$/),
    'Still here',
    expect.stringMatching(/^\(\d+ tokens\)$/),
    '',
  ])
  expect(JSON.stringify(model.requests.at(-1))).toContain('Hello there')
})

test('the client generated from the OpenAPI document runs agents and tasks, with typed errors', async () => {
  await promisify(execFile)(process.execPath, ['.config/rest-client.ts'], { cwd: ROOT })
  expect((await run('rest.ts')).split('\n')).toEqual([
    'A reply of the test model. true',
    expect.stringMatching(/^Write the release notes: completed in \d+ ms$/),
    '404 Agent not found',
    '',
  ])
})

test('the GraphQL client starts a run, follows it and reads it', async () => {
  expect(await run('graphql.ts')).toBe('A reply of the test model.\nAda: completed\n')
})

test.each(['openai.ts', 'ai-sdk.ts', 'ag-ui.ts', 'mcp.ts', 'a2a.ts'])(
  '%s runs an agent with a client of another protocol',
  async (name) => {
    expect((await run(name)).split('\n')[0]).toBe('A reply of the test model.')
  },
)

/** The reason why a program cannot run on this machine, or an empty string. */
const missing = (program: string, ...args: string[]): string =>
  spawnSync(program, args).status === 0 ? '' : `${[program, ...args].join(' ')} fails on this machine`

test.for([
  ['python_stdlib.py', missing('python3', '--version')],
  ['python_requests.py', missing('python3', '-c', 'import requests')],
])('%s runs an agent once, streams a second run, and reads an error', async ([name = '', reason = ''], { skip }) => {
  skip(reason !== '', reason)
  expect((await run(name, '', 'python3')).split('\n')).toEqual([
    'A reply of the test model. True',
    'A reply of the test model.',
    'completed',
    '404 Agent not found',
    '',
  ])
})

test('curl.sh runs an agent, and streams a second run', async ({ skip }) => {
  const reason = missing('curl', '--version')
  skip(reason !== '', reason)
  const [reply, ...events] = (await run('curl.sh', '', 'sh')).trimEnd().split('\n')
  expect(reply).toBe('A reply of the test model.')
  expect([events[0], events.at(-1)]).toEqual(['event: meta', 'event: result'])
})

import { mkdtemp, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createLog } from '../../src/lib/log.ts'
import { readSettings } from '../../src/settings.ts'
import { startService } from '../../src/start.ts'
import { createAgent } from '../support/api.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

/** Mistakes of a newcomer: the answer to each one is a sentence with the remedy. */

const server = await use(startServer())
const agentId = await createAgent(server)

const ada = { name: 'Ada', systemPrompt: 'You are Ada.' }
type Options = Parameters<typeof request>[3]

test.each<
  [mistake: string, method: string, path: string, options: Options, status: number, code: string, says: RegExp]
>([
  ['no token', 'GET', '/agents', { token: null }, 401, 'unauthorized', /Authorization: Bearer <token>/],
  ['a token of something else', 'GET', '/agents', { token: 'sk-123' }, 401, 'unauthorized', /must start with mst_/],
  [
    'the word Bearer left out',
    'GET',
    '/agents',
    { token: null, headers: { Authorization: 'mst_x' } },
    401,
    'unauthorized',
    /Bearer <token>/,
  ],
  ['a mistyped token', 'GET', '/agents', { token: `mst_${'a'.repeat(36)}` }, 401, 'unauthorized', /copy it again/],
  ['a missing field', 'POST', '/agents', { body: { name: 'Ada' } }, 400, 'missing_field', /systemPrompt/],
  [
    'a misspelt field',
    'POST',
    '/agents',
    { body: { ...ada, name: undefined, nmae: 'A' } },
    400,
    'missing_field',
    /Did you mean name\?/,
  ],
  [
    'a wrong type',
    'POST',
    '/agents',
    { body: { ...ada, maxTurns: '5' } },
    400,
    'invalid_value',
    /maxTurns. Expected number/,
  ],
  [
    'a wrong choice',
    'POST',
    '/agents',
    { body: { ...ada, visibility: 'secret' } },
    400,
    'invalid_value',
    /private, organization, public/,
  ],
  [
    'too long a text',
    'POST',
    '/agents',
    { body: { ...ada, name: 'x'.repeat(201) } },
    400,
    'invalid_value',
    /at most 200 characters/,
  ],
  ['invalid JSON', 'POST', '/agents', { body: '{"name": Ada}' }, 400, 'invalid_value', /double quotes/],
  ['a list for a body', 'POST', '/agents', { body: '[]' }, 400, 'invalid_value', /body. Expected object/],
  [
    'a form for a body',
    'POST',
    '/agents',
    { body: 'name=Ada', headers: { 'Content-Type': 'application/x-www-form-urlencoded' } },
    415,
    'unsupported_media_type',
    /Content-Type: application\/json/,
  ],
  ['JSON for an upload', 'POST', '/media', { body: {} }, 415, 'unsupported_media_type', /multipart\/form-data/],
  [
    'a number that is too large',
    'POST',
    '/agents',
    { body: '{"name": "Ada", "systemPrompt": "x", "maxTurns": 1e400}' },
    400,
    'invalid_value',
    /not one that is too large/,
  ],
  ['a misspelt parameter', 'GET', '/agents?limt=5', {}, 400, 'invalid_parameter', /Did you mean limit\?/],
  ['a word for a number', 'GET', '/agents?limit=many', {}, 400, 'invalid_value', /limit. Expected number/],
  ['another method', 'PUT', '/agents', { body: ada }, 405, 'method_not_allowed', /Use GET or HEAD or POST/],
  ['a misspelt path', 'GET', '/agent', {}, 404, 'not_found', /\/api\/docs/],
  ['an unknown id', 'GET', '/agents/none', {}, 404, 'not_found', /Check the id and the organization/],
  ['no message', 'POST', '/agents/{id}/execute', { body: {} }, 400, 'missing_field', /message/],
  [
    'an unknown model',
    'POST',
    '/agents/{id}/execute',
    { body: { message: 'Hi', model: 'gtp5' } },
    500,
    'model_not_available',
    /gtp5/,
  ],
  [
    'too large a body',
    'POST',
    '/agents',
    { body: { ...ada, description: 'x'.repeat(2 ** 20) } },
    413,
    'too_large',
    /1048576 bytes.*this one has \d+/,
  ],
])('the refusal of %s in %s %s says what to do', async (_, method, path, options, status, code, says) => {
  const answer = await request(server, method, `/api/v1${path.replace('{id}', agentId)}`, options)
  expect(answer).toMatchObject({ status, body: { code } })
  expect(`${answer.body.message}. ${answer.body.detail ?? ''}`).toMatch(says)
})

test('the error for a missing scope names the scope', async () => {
  const { token } = await server.member({ scopes: ['agents:read'] })
  const { body } = await request(server, 'POST', '/api/v1/agents', { token, body: ada })
  expect(body).toMatchObject({ code: 'insufficient_scope', detail: 'The token needs the scope agents:write' })
})

test.each<[mistake: string, env: Record<string, string>, says: RegExp]>([
  ['a word for a number', { PORT: 'http' }, /PORT: .*number/],
  [
    'a wrong DATABASE_URL',
    { DATABASE_URL: 'mysql://localhost/muster' },
    /DATABASE_URL: must begin with file: or postgresql:/,
  ],
  [
    'PostgreSQL without a key',
    { DATABASE_URL: 'postgresql://localhost/muster' },
    /ENCRYPTION_KEY: is required.*openssl/,
  ],
  ['a slash behind an origin', { CORS_ORIGINS: 'https://app.example/' }, /CORS_ORIGINS: .*no slash at the end/],
  ['a model without a provider', { DEFAULT_MODEL: 'my-model' }, /DEFAULT_MODEL: must name a model and its provider/],
])('the start refuses %s', (_, env, says) => {
  expect(() => readSettings(env)).toThrow(says)
})

test.skipIf(onPostgres)('the start names a busy port and a folder that cannot be written', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'muster-newcomer-'))
  const start = (env: Record<string, string>) =>
    startService(readSettings({ DATA_DIR: folder, PORT: '0', ...env }), createLog('silent'))
  const busy = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => busy.once('listening', resolve))
  const { port } = busy.address() as AddressInfo
  await expect(start({ PORT: String(port) })).rejects.toThrow(new RegExp(`EADDRINUSE.*${port}`))
  busy.close()
  await writeFile(join(folder, 'file'), '')
  await expect(start({ DATA_DIR: join(folder, 'file', 'data') })).rejects.toThrow(/ENOTDIR.*file/)
})

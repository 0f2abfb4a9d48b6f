import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { McpConfig } from '../../src/lib/mcp-config.ts'
import { secretsOf } from '../../src/mcps/declared-secrets.ts'
import { createOperatorServers } from '../../src/mcps/operator.ts'
import { readSettings, SettingsError } from '../../src/settings.ts'
import { createFolder } from '../support/folder.ts'
import { use } from '../support/use.ts'

/** The file of MCP_CONFIG (contract-2.md section 2.12). */
const folder = await use(createFolder())

function configured(content: unknown) {
  const path = join(folder.path, 'mcp.json')
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return readSettings({ MCP_CONFIG: path })
}
const withServer = (entry: unknown) => ({ mcpServers: { github: entry } })

describe('an invalid file', () => {
  it.each<[string, unknown, string]>([
    ['is no JSON', '{', 'must name a JSON file, such as {'],
    ['is a list', [], 'Expected object'],
    ['has no servers', {}, 'mcpServers: must be an object of servers by name'],
    [
      'has servers beside mcpServers',
      { mcpServers: {}, github: {} },
      'has the unknown field github: use one of mcpServers',
    ],
    ['has a nameless server', { mcpServers: { '': { command: 'x' } } }, 'names of 1 to 100 printable characters'],
  ])('an invalid file that %s stops the start', (_, content, message) => {
    expect(() => configured(content)).toThrow(message)
  })

  it.each<[string, object, string]>([
    ['neither program nor address', {}, 'mcpServers.github: must have a command or a url'],
    ['both', { command: 'x', url: 'https://a.example' }, 'github.url: must not stand beside command'],
    [
      'a program of a remote type',
      { type: 'sse', command: 'x' },
      'github.type: must be stdio, or absent, beside command',
    ],
    [
      'a misspelled field',
      { command: 'x', enviroment: {} },
      'has the unknown field enviroment: use one of type, command, args, env',
    ],
    ['a field of another program', { serverUrl: 'https://a.example' }, 'has the unknown field serverUrl: use url'],
    ['its approvals as elsewhere', { command: 'x', autoApprove: [] }, 'unknown field autoApprove: use permissions'],
    ['a relative program', { command: './server' }, 'github.command: must be an absolute path'],
    ['arguments as a text', { command: 'x', args: '-y' }, 'github.args: must be a list of texts'],
    [
      'a number in the environment',
      { command: 'x', env: { PORT: 1 } },
      'env.PORT: must be a text: write numbers and true in quotes',
    ],
    ['a reference', { command: 'x', env: { TOKEN: `\${GITHUB_TOKEN}` } }, 'env.TOKEN: must be the value itself'],
    ['NUL in an argument', { command: 'x', args: ['\0'] }, 'github.args.0: must not contain the character NUL'],
    ['a relative folder', { command: 'x', cwd: 'work' }, 'github.cwd: must be the absolute path of a folder'],
    ['headers of a program', { command: 'x', headers: {} }, 'github.headers: is for servers with a url'],
    [
      'an environment of an address',
      { url: 'https://a.example', env: {} },
      'github.env: is for servers with a command',
    ],
    ['another scheme', { url: 'ftp://a.example' }, 'github.url: must be an http or https address'],
    ['a password in the address', { url: 'https://a:b@a.example' }, 'github.url: must have no user or password'],
    ['a header of two lines', { url: 'https://a.example', headers: { A: 'a\nb' } }, 'headers.A: must be one line'],
    ['the wrong type', { url: 'https://a.example', type: 'stdio' }, 'github.type: must be streamable-http or sse'],
    [
      'an unknown type',
      { url: 'https://a.example', type: 'ws' },
      'github.type: must be stdio, http, streamable-http or sse',
    ],
    [
      'one organization as a text',
      { command: 'x', organizations: 'default' },
      'organizations: must be a list of slugs',
    ],
    ['no organization', { command: 'x', organizations: [] }, 'organizations: must name an organization'],
    ['an unknown mode', { command: 'x', permissions: [{ tool: 'a', mode: 'no' }] }, 'mode: must be allow, ask or deny'],
    [
      'a tool twice',
      {
        command: 'x',
        permissions: [
          { tool: 'a', mode: 'ask' },
          { tool: 'a', mode: 'deny' },
        ],
      },
      'permissions: must name each tool once',
    ],
    ['a text for disabled', { command: 'x', disabled: 'yes' }, 'github.disabled: must be true or false'],
  ])('an invalid file with %s stops the start, and names the entry and the remedy', (_, entry, message) => {
    const read = () => configured(withServer(entry))
    expect(read).toThrow(SettingsError)
    expect(read).toThrow(message)
    expect(read).toThrow('MCP_CONFIG: ')
  })

  it('an invalid file that cannot be read stops the start', () => {
    expect(() => readSettings({ MCP_CONFIG: join(folder.path, 'nothing.json') })).toThrow('MCP_CONFIG: cannot be read')
  })
})

describe('a program that does not exist', () => {
  const create = (entry: object) => () => createOperatorServers({ settings: configured(withServer(entry)) } as never)

  it.each<[string, object, string]>([
    ['has no PATH', { command: 'no-such-program' }, 'env has no PATH, and the one of this service is not inherited'],
    [
      'is not on its PATH',
      { command: 'sh', env: { PATH: '/nowhere' } },
      'sh is not found (it is not on the PATH of env)',
    ],
    ['is not at its path', { command: '/nowhere/server' }, '/nowhere/server is no executable file'],
    ['is a folder', { command: '/tmp' }, '/tmp is no executable file'],
  ])('a program that is missing because it %s stops the start with the entry and the remedy', (_, entry, message) => {
    expect(create(entry)).toThrow(SettingsError)
    expect(create(entry)).toThrow(`MCP_CONFIG: mcpServers.github.command: `)
    expect(create(entry)).toThrow(message)
  })

  it('is found on the PATH of its own environment', () => {
    const path = join(folder.path, 'my-server')
    writeFileSync(path, '#!/bin/sh\n')
    chmodSync(path, 0o755)
    expect(create({ command: 'my-server', env: { PATH: `/nowhere:${folder.path}` } })).not.toThrow()
    expect(create({ command: 'no-such-program', disabled: true })).not.toThrow()
  })
})

it('the secrets of a server are its values, apart from words, numbers, paths and origins', () => {
  const secrets = (entry: object) => McpConfig.parse(withServer(entry)).flatMap(secretsOf)
  const env = {
    PATH: '/usr/bin:/bin',
    HOME: '/srv/data',
    NODE_ENV: 'production',
    PORT: '8080',
    BASE: 'https://github.example',
    GITHUB_TOKEN: 'word',
    OTHER: 'Xk29-df/3',
    DATABASE_URL: 'postgres://a:b@c/d',
    PEM: 'line 1\nline 2',
  }
  expect(secrets({ command: 'x', args: ['--api-key=one', '--token', 'two', '--dir', '/srv', '-y'], env })).toEqual([
    ...['word', 'Xk29-df/3', 'postgres://a:b@c/d', 'line 1', 'line 2', 'one', 'two'],
  ])
  const url = 'https://a.example/s/0123456789abcdef0123/mcp?key=three'
  expect(secrets({ url, headers: { Authorization: 'Bearer four' } })).toEqual(
    expect.arrayContaining(['Bearer four', 'four', '0123456789abcdef0123', 'three']),
  )
})

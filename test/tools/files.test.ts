import { expect, it } from 'vitest'
import { fileTools } from '../../src/files/tools.ts'
import { request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { callTool, startLab } from './lab.ts'

const lab = await use(startLab())
const ann = await lab.server.member({ organization: 'Acme' })
const agentId = await lab.agent(ann)
const spaceId = await lab.space(ann, { visibility: 'private' })

const toolsOf = async (who: Member, scopes?: string) =>
  fileTools(lab.server.service.deps, await lab.user(who, agentId, spaceId, scopes))
const call = async (name: string, input: unknown = {}, who = ann) => callTool(await toolsOf(who), name, input)
const put = (path: string, content: string, encoding = 'utf8') =>
  request(lab.server, 'PUT', `/api/v1/spaces/${spaceId}/files/content?path=${encodeURIComponent(path)}`, {
    token: ann.token,
    body: { content, encoding },
  })

it('write_file writes the file that every API reads', async () => {
  expect(await call('write_file', { path: 'docs/plan.md', content: '# Plän' })).toBe('Wrote docs/plan.md: 7 bytes')
  expect(await call('read_file', { path: 'docs/plan.md' })).toBe('# Plän')
  const { content } = await lab.get(ann, `/api/v1/spaces/${spaceId}/files/content?path=docs/plan.md`)
  expect(content).toBe('# Plän')
  await call('write_file', { path: 'docs/plan.md', content: '' })
  expect(await call('read_file', { path: 'docs/plan.md' })).toBe('[Nothing: the text ends here]')
})

it('list_files lists by path, page by page', async () => {
  for (const path of ['list/b.md', 'list/a.md', 'list/c.md']) await put(path, path)
  const first = await call('list_files', { path: 'list/', limit: 2 })
  expect(first.files).toEqual(
    ['list/a.md', 'list/b.md'].map((path) => ({ path, size: 9, updatedAt: expect.any(String) })),
  )
  const { files, nextCursor } = await call('list_files', { path: 'list/', cursor: first.nextCursor })
  expect([files.map(({ path }: { path: string }) => path), nextCursor]).toEqual([['list/c.md'], null])
})

it('a path may begin with ./ as in a shell, and . or / lists the whole space', async () => {
  await call('write_file', { path: './shell/a.md', content: 'find me in the shell' })
  expect(await call('read_file', { path: './shell/a.md' })).toBe('find me in the shell')
  await call('edit_file', { path: './shell/a.md', find: 'me', replace: 'us' })
  const pathsOf = ({ files }: { files: { path: string }[] }) => files.map(({ path }) => path)
  expect(pathsOf(await call('list_files', { path: './shell' }))).toEqual(['shell/a.md'])
  const whole = pathsOf(await call('list_files'))
  for (const path of ['.', './', '/']) {
    expect(pathsOf(await call('list_files', { path }))).toEqual(whole)
    expect((await call('search_files', { query: 'find us', path })).lines).toHaveLength(1)
  }
})

it('read_file reads a long file in parts that join to the whole, without breaking a character', async () => {
  const whole = `a${'😀'.repeat(60_000)}ü`
  await put('long.txt', whole)
  let text = ''
  for (let offset = 0; ; ) {
    const part: string = await call('read_file', { path: 'long.txt', offset })
    expect([...part].length).toBeLessThan(51_000)
    expect(part.isWellFormed()).toBe(true)
    const note = /\n\[Cut off after \d+ of 60002 characters: continue with offset (\d+)\]$/.exec(part)
    text += part.slice(0, note?.index)
    if (!note) break
    offset = Number(note[1])
  }
  expect(text).toBe(whole)
})

it.each(['utf16le', 'latin1'] as const)('read_file reads a file in %s', async (encoding) => {
  const bytes = Buffer.from(encoding === 'latin1' ? 'Zürich' : '\ufeffZürich', encoding)
  await put('cities.csv', bytes.toString('base64'), 'base64')
  expect(await call('read_file', { path: 'cities.csv' })).toBe('Zürich')
})

it.each([
  ['read_file', {}, 400, 'Missing required field: path'],
  ['read_file', { path: 'none.md' }, 404, 'File not found'],
  ['read_file', { path: '../x' }, 400, 'Invalid path. A path has names separated by `/`'],
  ['read_file', { path: 'a\0b' }, 400, 'Invalid path'],
  ['read_file', { path: 'bin', offset: -1 }, 400, 'Invalid value for field: offset. Expected at least 0'],
  ['read_file', { path: 'bin' }, 400, 'The file is not text'],
  ['read_file', { path: 'short.md', offset: 6 }, 400, 'Invalid offset. The text has 5 characters'],
  ['write_file', { path: '/etc/passwd', content: 'x' }, 400, 'Invalid path'],
  ['write_file', { path: 'a\\b', content: 'x' }, 400, 'Invalid path'],
  ['write_file', { path: 'a.md' }, 400, 'Missing required field: content'],
  ['write_file', { path: 'a.md', content: 'x'.repeat(1024 * 1024 + 1) }, 400, 'File too large. At most 1 MiB'],
  ['list_files', { path: '..' }, 400, 'Invalid path'],
  ['list_files', { limit: 201 }, 400, 'Invalid value for field: limit. Expected at most 200'],
])('%s refuses %j', async (name, input, status, message) => {
  await put('bin', Buffer.from([0xff, 0, 1]).toString('base64'), 'base64')
  await put('short.md', 'short')
  await expect(call(name, input)).rejects.toMatchObject({ status, message: expect.stringContaining(message) })
})

it.each([
  ['list_files', {}],
  ['read_file', { path: 'secret.md' }],
  ['write_file', { path: 'secret.md', content: 'mine' }],
])('%s finds no space that its user cannot reach', async (name, input) => {
  await put('secret.md', 'secret')
  const ben = await lab.server.member({ organization: 'Acme' })
  const eve = await lab.server.member({ organization: 'Other', role: 'owner' })
  for (const who of [ben, eve]) {
    await expect(call(name, input, who)).rejects.toMatchObject({ status: 404, message: 'Space not found' })
  }
  expect(await call('read_file', { path: 'secret.md' })).toBe('secret')
})

it.each([
  ['list_files', {}, 'spaces:read', 'agents:execute tasks:write'],
  ['read_file', { path: 'scoped.md' }, 'spaces:read', 'agents:execute tasks:write'],
  ['write_file', { path: 'scoped.md', content: 'new' }, 'spaces:write', 'agents:execute tasks:write spaces:read'],
])('%s %j needs %s as REST does, or changes nothing and names the scope', async (...args) => {
  const [name, input, scope, without] = args
  await put('scoped.md', 'old')
  const within = async (scopes: string) => callTool(await toolsOf(ann, scopes), name, input)
  const message = `This run's token lacks the scope ${scope}`
  await expect(within(without)).rejects.toMatchObject({ status: 403, message })
  expect(await call('read_file', { path: 'scoped.md' })).toBe('old')
  await within(`agents:execute ${scope}`)
})

it('edit_file replaces a text that occurs once, or every occurrence', async () => {
  await put('edit.txt', 'one two two')
  expect(await call('edit_file', { path: 'edit.txt', find: 'one', replace: '$&1' })).toBe(
    'Changed edit.txt in 1 place: 11 bytes',
  )
  await expect(call('edit_file', { path: 'edit.txt', find: 'two', replace: '2' })).rejects.toThrow('occurs 2 times')
  await expect(call('edit_file', { path: 'edit.txt', find: 'ten', replace: '10' })).rejects.toThrow(
    'is not in the file',
  )
  await call('edit_file', { path: 'edit.txt', find: 'two', replace: '2', all: true })
  expect(await call('read_file', { path: 'edit.txt' })).toBe('$&1 2 2')
  await put('binary', Buffer.from([0, 1]).toString('base64'), 'base64')
  await expect(call('edit_file', { path: 'binary', find: 'a', replace: 'b' })).rejects.toThrow('not text')
  await expect(call('edit_file', { path: 'none', find: 'a', replace: 'b' })).rejects.toThrow('File not found')
})

it('edit_file finds lines in a file from Windows, and keeps its line ends', async () => {
  await put('windows.txt', 'one\r\ntwo\r\nthree')
  await call('edit_file', { path: 'windows.txt', find: 'one\ntwo', replace: '1\n2' })
  expect(await call('read_file', { path: 'windows.txt' })).toBe('1\r\n2\r\nthree')
  await put('mixed.txt', 'one\r\ntwo\nthree')
  await call('edit_file', { path: 'mixed.txt', find: 'two\nthree', replace: '2\n3' })
  expect(await call('read_file', { path: 'mixed.txt' })).toBe('one\r\n2\n3')
})

it('of concurrent edits of a file none is lost', async () => {
  const words = Array.from({ length: 10 }, (_, index) => `word${index};`)
  await put('race.txt', words.join(''))
  await Promise.all(words.map((find) => call('edit_file', { path: 'race.txt', find, replace: '.' })))
  expect(await call('read_file', { path: 'race.txt' })).toBe('.'.repeat(10))
})

it('search_files finds lines regardless of case, by path, up to a limit', async () => {
  await put('search/a.md', 'Plan\nBuy MILK\n')
  await put('search/b.md', `milk ${'x'.repeat(400)}\nmilk`)
  await put('search/c.bin', Buffer.from('milk\0').toString('base64'), 'base64')
  const found = await call('search_files', { query: 'milk', path: 'search/' })
  expect(found).toMatchObject({
    lines: [
      { path: 'search/a.md', line: 2, text: 'Buy MILK' },
      { path: 'search/b.md', line: 1 },
      { path: 'search/b.md', line: 2, text: 'milk' },
    ],
    hasMore: false,
  })
  expect(found.lines[1].text.length).toBeLessThan(310)
  const first = { lines: found.lines.slice(0, 1), hasMore: true }
  expect(await call('search_files', { query: 'milk', path: 'search/', limit: 1 })).toEqual(first)
  expect(await call('search_files', { query: 'none of it' })).toEqual({ lines: [], hasMore: false })
})

it('edit_file and search_files need their scopes', async () => {
  const tools = await toolsOf(ann, 'agents:execute')
  await expect(callTool(tools, 'edit_file', { path: 'a', find: 'a', replace: 'b' })).rejects.toThrow()
  await expect(callTool(tools, 'search_files', { query: 'a' })).rejects.toThrow()
})

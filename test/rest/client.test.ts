import { spawnSync } from 'node:child_process'
import dns from 'node:dns/promises'
import { mkdirSync, readdirSync, rmSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { basename, join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { removeStaleClones } from '../../src/client/git.ts'
import { expectError } from '../support/api.ts'
import { createFolder } from '../support/folder.ts'
import { type GitServer, startGitServer } from '../support/git-server.ts'
import { request } from '../support/rest.ts'
import { type Member, startServer, type TestServer } from '../support/server.ts'
import { openStream } from '../support/sse.ts'

// The same endpoints with ID tokens: test/auth/id-tokens.test.ts.

const FORBIDDEN = "You don't have permission to access this resource"
const INITIALIZED = 'Space is already initialized'

/** The resolver answers these names itself, and passes on all others. */
const names = new Map<string, string[]>()
const { lookup } = dns
const lookupName = async (name: string, options: { all: true }) =>
  names.get(name)?.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })) ?? lookup(name, options)

let server: TestServer
let owner: Member
let member: Member
beforeAll(async () => {
  vi.spyOn(dns, 'lookup').mockImplementation(lookupName as unknown as typeof lookup)
  syncBuiltinESMExports()
  server = await startServer({ ALLOW_PRIVATE_NETWORK: 'true' })
  owner = await server.member({ organization: 'Acme', role: 'owner' })
  member = await server.member({ organization: 'Acme' })
})
afterAll(() => {
  vi.restoreAllMocks()
  syncBuiltinESMExports()
  return server[Symbol.asyncDispose]()
})

const post = ({ token }: { token: string }, path: string, body?: unknown, headers = {}) =>
  request(server, 'POST', path, { token, headers, ...(body !== undefined && { body }) })

async function createSpace(who: Member = owner, more: object = {}): Promise<string> {
  return (await post(who, '/api/v1/spaces', { name: 'Space', ...more })).body.id
}

const init = (id: string, body: unknown, who: { token: string } = owner, headers = {}) =>
  post(who, `/api/spaces/${id}/init`, body, headers)

/** The text of every file of a space, by path. */
async function filesOf(id: string): Promise<Record<string, string>> {
  const rows = await server.service.deps.db.spaceFile.findMany({ where: { spaceId: id }, orderBy: { path: 'asc' } })
  return Object.fromEntries(rows.map(({ path, content }) => [path, Buffer.from(content).toString()]))
}

describe('a space is initialized', () => {
  it.each([
    ['empty', []],
    ['readme', ['README.md']],
    ['starterKit', ['README.md', 'AGENTS.md', 'skills/summarize/SKILL.md']],
  ])('as %s, with the files %j', async (type, files) => {
    const id = await createSpace(owner, { description: 'What it is for' })
    const { status, body } = await init(id, { type })
    expect([status, body]).toEqual([
      200,
      { success: true, space: expect.objectContaining({ id, name: 'Space' }), files, skipped: 0 },
    ])
    expect(body.space.fileCount).toBe(files.length)
    const found = await filesOf(id)
    expect(Object.keys(found).sort()).toEqual(files.toSorted())
    if (files.length) expect(found['README.md']).toBe('# Space\n\nWhat it is for\n')
    if (type === 'starterKit')
      expect(found['skills/summarize/SKILL.md']).toMatch(/^---\nname: summarize\ndescription: .+\n---\n/)
    const { body: listed } = await request(server, 'GET', `/api/v1/spaces/${id}/files`, { token: owner.token })
    expect(listed.files.map(({ path }: { path: string }) => path).sort()).toEqual(files.toSorted())
  })

  it('a space is initialized and renamed, if a name is given', async () => {
    const id = await createSpace()
    const { body } = await init(id, { type: 'readme', spaceName: 'Research', orgId: owner.organizationId })
    expect(body.space.name).toBe('Research')
    const { spaces } = (await request(server, 'GET', '/api/v1/spaces?search=research', { token: owner.token })).body
    expect(spaces).toEqual([body.space])
    expect(await filesOf(id)).toEqual({ 'README.md': '# Research\n' })
  })

  it('once, whoever asks', async () => {
    const id = await createSpace()
    const answers = await Promise.all(['empty', 'readme', 'starterKit', 'readme'].map((type) => init(id, { type })))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409])
    const [winner] = answers.filter(({ status }) => status === 200)
    expect(Object.keys(await filesOf(id)).sort()).toEqual(winner?.body.files.sort())
    expectError(await init(id, { type: 'empty' }), 409, INITIALIZED)
    const where = { action: 'space.init', target: id }
    expect(await server.service.deps.db.auditEvent.count({ where })).toBe(1)
  })

  it('a space is initialized beside existing files, which stay unchanged', async () => {
    const id = await createSpace()
    const path = `/api/v1/spaces/${id}/files/content?path=README.md`
    await request(server, 'PUT', path, { token: owner.token, body: { content: 'mine' } })
    const { body } = await init(id, { type: 'starterKit' })
    expect(body.files).toEqual(['AGENTS.md', 'skills/summarize/SKILL.md'])
    expect(body.space.fileCount).toBe(3)
    expect((await filesOf(id))['README.md']).toBe('mine')
  })

  it('a space is initialized once per Idempotency-Key, with the same answer again', async () => {
    const id = await createSpace()
    const headers = { 'Idempotency-Key': 'init' }
    const first = await init(id, { type: 'readme' }, owner, headers)
    const again = await init(id, { type: 'readme' }, owner, headers)
    expect([again.status, again.body]).toEqual([200, first.body])
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expectError(await init(id, { type: 'empty' }, owner, headers), 422, 'Idempotency-Key was used with another request')
    expectError(
      await init(await createSpace(), { type: 'x' }, owner, headers),
      400,
      'Invalid type. Must be: empty, git, readme, starterKit',
    )
    expectError(await init(id, { type: 'empty' }, owner, { 'Idempotency-Key': 'other' }), 409, INITIALIZED)
  })

  it('only by its owner and by admins', async () => {
    const admin = await server.member({ organization: 'Acme', role: 'admin' })
    const stranger = await server.member({ organization: 'Strangers', role: 'owner' })
    const reader = await server.member({ organization: 'Acme', role: 'owner', scopes: ['spaces:read'] })
    const ours = await createSpace()
    expectError(await init(ours, { type: 'empty' }, member), 403, FORBIDDEN)
    expectError(await init(ours, { type: 'empty' }, reader), 403, FORBIDDEN)
    expectError(await init(ours, { type: 'empty' }, stranger), 404, 'Space not found')
    expectError(await init('unknown', { type: 'empty' }), 404, 'Space not found')
    expectError(await init(ours, { type: 'empty', orgId: stranger.organizationId }), 403, FORBIDDEN)
    expect((await init(ours, { type: 'empty' }, admin)).status).toBe(200)
    expect((await init(await createSpace(member), { type: 'empty' }, member)).status).toBe(200)
  })

  it.each<[string, unknown, string]>([
    ['no type', {}, 'Missing required field: type'],
    ['null', { type: null }, 'Missing required field: type'],
    ['an empty type', { type: '' }, 'Missing required field: type'],
    ['a blank type', { type: ' \n' }, 'Missing required field: type'],
    ['a type that is no text', { type: [] }, 'Invalid type. Must be: empty, git, readme, starterKit'],
    ['another type', { type: 'README' }, 'Invalid type. Must be: empty, git, readme, starterKit'],
    ['a blank name', { type: 'empty', spaceName: ' ' }, 'Missing required field: spaceName'],
    [
      'a name too long',
      { type: 'empty', spaceName: 'x'.repeat(201) },
      'Invalid value for field: spaceName. Expected at most 200 characters',
    ],
    ['no address', { type: 'git' }, 'Missing required field: url'],
    ['a blank address', { type: 'git', url: ' ' }, 'Missing required field: url'],
    ['no JSON', '{', 'Invalid JSON in request body'],
  ])('not with %s', async (_, body, message) => {
    const id = await createSpace()
    expectError(await init(id, body), 400, message)
    expect((await init(id, { type: 'empty' })).status).toBe(200)
  })
})

describe('a repository', () => {
  let git: GitServer
  let temporary: Awaited<ReturnType<typeof createFolder>>
  beforeAll(async () => {
    git = await startGitServer('pinned.example')
    temporary = await createFolder()
    vi.stubEnv('GIT_SSL_CAINFO', git.caFile)
    vi.stubEnv('TMPDIR', temporary.path)
  })
  afterAll(async () => {
    vi.unstubAllEnvs()
    await git[Symbol.asyncDispose]()
    await temporary[Symbol.asyncDispose]()
  })
  afterEach(() => {
    git.instead = null
    git.requests.length = 0
    names.clear()
    // No test leaves files behind.
    expect(clones()).toEqual([])
  })

  const clones = () => readdirSync(temporary.path).filter((name) => name.startsWith('muster-clone-'))

  const clone = async (url: string, more: object = {}) => {
    const id = await createSpace()
    return { id, ...(await init(id, { type: 'git', url, ...more })) }
  }

  it('becomes files of the space, from its default branch or a given branch or tag', async () => {
    git.commit('a.git', { 'README.md': '# Hello', 'src/deep/x.ts': 'x', empty: '', 'ü.md': 'ü' })
    git.commit('a.git', { 'only.md': 'feature' }, 'feature/x')
    const { id, status, body } = await clone(`${git.url}/a.git`)
    expect([status, body.skipped, body.files.sort()]).toEqual([200, 0, ['README.md', 'empty', 'src/deep/x.ts', 'ü.md']])
    expect(await filesOf(id)).toEqual({ 'README.md': '# Hello', 'src/deep/x.ts': 'x', empty: '', 'ü.md': 'ü' })
    const branch = await clone(`${git.url}/a.git`, { branch: 'feature/x' })
    expect(await filesOf(branch.id)).toEqual({ 'only.md': 'feature' })
    expect(branch.body.space.fileCount).toBe(1)
  })

  it('a repository without a commit is refused', async () => {
    git.create('empty.git')
    expectError(await clone(`${git.url}/empty.git`), 400, 'Repository could not be cloned: it has no commit')
  })

  it('loses links, submodules, paths outside of it, and files that are too large', async () => {
    git.commit('hostile.git', {
      'kept.md': 'kept',
      '.gitmodules': '[submodule "x"]\n\tpath = sub\n\turl = file:///etc\n',
      '.gitattributes': '* filter=evil\n',
      'hooks/post-checkout': '#!/bin/sh\ntouch /tmp/evil\n',
      link: { link: '/etc/passwd' },
      sub: { submodule: 'f'.repeat(40) },
      '../up': 'x',
      './here': 'x',
      'a\\b': 'x',
      'a\nb': 'x',
      'C:x': 'x',
      '%2e%2e': 'x',
      '.git/config': 'x',
      'a/.GIT/hooks/x': 'x',
      'git~1/x': 'x',
      'CON.txt': 'x',
      [`${'x'.repeat(200)}/${'y'.repeat(200)}/${'z'.repeat(200)}`]: 'x',
      large: Buffer.alloc(1024 * 1024 + 1),
      'not so large': Buffer.alloc(1024 * 1024),
    })
    const { id, body } = await clone(`${git.url}/hostile.git`)
    expect(body.files.sort()).toEqual([
      '.gitattributes',
      '.gitmodules',
      'hooks/post-checkout',
      'kept.md',
      'not so large',
    ])
    expect(body.skipped).toBe(14)
    expect((await filesOf(id))['kept.md']).toBe('kept')
  })

  it('a repository larger than a space is refused as a whole', async () => {
    const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`f${at}`, 'x']))
    git.commit('many.git', many(2001))
    const refused = await clone(`${git.url}/many.git`)
    expectError(refused, 400, 'Too many files. At most 2000 in a space')
    expect(await filesOf(refused.id)).toEqual({})
    expect((await init(refused.id, { type: 'empty' })).status).toBe(200)
    const block = Buffer.alloc(1024 * 1024)
    git.commit('large.git', Object.fromEntries(Array.from({ length: 51 }, (_, at) => [`f${at}`, block])))
    expectError(await clone(`${git.url}/large.git`), 400, 'Space is full. At most 50 MiB of files')
    git.commit('most.git', many(2000))
    expect((await clone(`${git.url}/most.git`)).body.space.fileCount).toBe(2000)
  })

  const URLS = [
    ...['http', 'git', 'ssh', 'file', 'ext', 'ftp', 'ftps', 'data'].map((scheme) => `${scheme}://localhost/a.git`),
    'a.git',
    '/etc',
    './a',
    'git@localhost:a.git',
    'localhost:a.git',
    'ext::sh -c touch% /tmp/evil',
    'https://',
    'https:///',
    '-u',
    '--upload-pack=touch /tmp/evil',
    '--config=core.sshCommand=x',
    ' --help',
    'https://-oProxyCommand=x/a.git',
    'https://-x.example/a.git',
    'https://user@localhost/a.git',
    'https://user:password@localhost/a.git',
    'https://:password@localhost/a.git',
    'https://localhost/a.git?x',
    'https://localhost/a.git#x',
    'https://localhost/a b.git',
    'https://localhost/a.git\n--x',
    'https://localhost\\a.git',
    'https://localhost:99999/a.git',
    'https://*/a.git',
    'https://a,b/a.git',
    `https://localhost/${'x'.repeat(2000)}`,
    'https://name.invalid/a.git',
  ]
  it.each(URLS)('a repository at %j is refused', async (url) => {
    for (const name of ['-oproxycommand=x', '-x.example', '*', 'a,b']) names.set(name, ['127.0.0.1'])
    const { status, body } = await clone(url)
    expect([status, body.message]).toEqual([
      400,
      expect.stringMatching(/^Invalid (url\. Must be|value for field: url)/),
    ])
  })

  it.each([
    ...['-x', '--upload-pack=x', '/x', 'x/', '.x', 'x/.y', 'x..y', 'x//y', 'x y', 'x~1', 'x^', 'x:y', 'x?', 'x*', 'x['],
    ...['x\\y', 'x@{1}', '@', 'x.lock', 'x.lock/y', 'x.', 'x\ny', 'x\x7f', '..', '.', `${'x'.repeat(251)}`],
  ])('a repository with the branch %j is refused', async (branch) => {
    const { status, body } = await clone(`${git.url}/a.git`, { branch })
    expect([status, body.message]).toEqual([400, expect.stringMatching(/^Invalid (branch|value for field: branch)/)])
    expect(git.requests).toEqual([])
  })

  it.each<[string, string, object, string]>([
    ['none', '/none.git', {}, 'there is none, or it is not public'],
    ['no such branch', '/a.git', { branch: 'none' }, 'there is no such branch'],
  ])('a repository with %s missing gives a 400', async (_, path, more, reason) => {
    expectError(await clone(git.url + path, more), 400, `Repository could not be cloned: ${reason}`)
  })

  type Instead = NonNullable<GitServer['instead']>
  it.each<[string, Instead, RegExp]>([
    ['wants a password', (_, res) => void res.writeHead(401, { 'WWW-Authenticate': 'Basic' }).end(), /not public/],
    ['says no', (_, res) => void res.writeHead(403).end(), /not public/],
    ['redirects', (_, res) => void res.writeHead(302, { Location: `${git.url}/a.git` }).end(), /has moved/],
    ['redirects to a file', (_, res) => void res.writeHead(301, { Location: 'file:///etc' }).end(), /has moved/],
    ['fails', (_, res) => void res.writeHead(500).end('git: internal details'), /cannot be read/],
    ['hangs up', (_, res) => void res.destroy(), /cannot be read/],
    ['is a page', (_, res) => void res.end('<html>'), /./],
    [
      'is of the old protocol, with files elsewhere',
      (req, res) => {
        const alternates = req.url?.endsWith('/objects/info/http-alternates')
        res.end(
          alternates
            ? 'http://127.0.0.1/x\n'
            : req.url?.includes('info/refs')
              ? `${'a'.repeat(40)}\trefs/heads/main\n`
              : '',
        )
      },
      /./,
    ],
  ])('a repository whose server %s gives a 400 without details', async (_, instead, reason) => {
    git.instead = instead
    const { status, body } = await clone(`${git.url}/a.git`)
    expect([status, body.message]).toEqual([400, expect.stringMatching(/^Repository could not be cloned: [\w ,;]+$/)])
    expect(body.message).toMatch(reason)
    expect(git.requests.some((path) => path.includes('alternates'))).toBe(false)
  })

  it('is abandoned without a trace when the caller leaves', async () => {
    const asked = Promise.withResolvers<void>()
    git.instead = () => asked.resolve()
    const id = await createSpace()
    const caller = new AbortController()
    const call = fetch(`${server.url}/api/spaces/${id}/init`, {
      method: 'POST',
      signal: caller.signal,
      headers: {
        Authorization: `Bearer ${owner.token}`,
        'Content-Type': 'application/json',
        'Idempotency-Key': 'gone',
      },
      body: JSON.stringify({ type: 'git', url: `${git.url}/a.git` }),
    })
    await asked.promise
    expect(clones()).toHaveLength(1)
    caller.abort()
    await expect(call).rejects.toThrow()
    await expect.poll(clones).toEqual([])
    git.instead = null
    const again = () => init(id, { type: 'git', url: `${git.url}/a.git` }, owner, { 'Idempotency-Key': 'gone' })
    await expect.poll(async () => (await again()).status).toBe(200)
  })

  it('is dropped if another request has initialized the space meanwhile', async () => {
    const gate = Promise.withResolvers<void>()
    git.hold = gate.promise
    const id = await createSpace()
    const late = init(id, { type: 'git', url: `${git.url}/a.git` })
    await expect.poll(() => git.requests).toHaveLength(1)
    expect((await init(id, { type: 'empty' })).status).toBe(200)
    gate.resolve()
    expectError(await late, 409, INITIALIZED)
    expect(await filesOf(id)).toEqual({})
  })

  it('is cloned two at a time per organization and four in total, and others give 429', async () => {
    const waiting: Parameters<Instead>[1][] = []
    git.instead = (_, res) => void waiting.push(res)
    const others = await Promise.all(['Other', 'Third'].map((organization) => server.member({ organization })))
    const attempt = async (who: Member) => {
      const id = await createSpace(who)
      return init(id, { type: 'git', url: `${git.url}/a.git` }, who)
    }
    const answers = [attempt(owner), attempt(owner)]
    await expect.poll(() => waiting).toHaveLength(2)
    const refused = await attempt(owner)
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1'])
    answers.push(attempt(others[0]!), attempt(others[0]!))
    await expect.poll(() => waiting).toHaveLength(4)
    expect((await attempt(others[1]!)).status).toBe(503)
    for (const res of waiting) res.writeHead(404).end()
    expect((await Promise.all(answers)).map((answer) => answer.status)).toEqual([400, 400, 400, 400])
    git.instead = null
    expect((await clone(`${git.url}/a.git`)).status).toBe(200)
  })

  it('leaves folders behind only until the next start when its server is killed', async () => {
    const { pid } = spawnSync(process.execPath, ['-e', ''])
    const stale = join(temporary.path, `muster-clone-${pid}-AbCdEf`)
    const alive = join(temporary.path, `muster-clone-${process.ppid}-AbCdEf`)
    for (const folder of [stale, alive]) mkdirSync(folder)
    expect(await removeStaleClones()).toEqual([stale])
    expect(clones()).toEqual([basename(alive)])
    rmSync(alive, { recursive: true })
  })

  it('is read at the address that was checked', async () => {
    names.set('pinned.example', ['127.0.0.1'])
    expect((await clone(`https://pinned.example:${git.port}/a.git`)).status).toBe(200)
    names.set('pinned.example', ['127.0.0.2', '::1'])
    expectError(
      await clone(`https://pinned.example:${git.port}/a.git`),
      400,
      'Repository could not be cloned: it cannot be read',
    )
  })

  it('is refused from a server with an invalid certificate', async () => {
    names.set('other.example', ['127.0.0.1'])
    expectError(
      await clone(`https://other.example:${git.port}/a.git`),
      400,
      'Repository could not be cloned: it cannot be read',
    )
  })

  describe('in a private network', () => {
    let strict: TestServer
    beforeAll(async () => {
      strict = await startServer()
    })
    afterAll(() => strict[Symbol.asyncDispose]())

    const HOSTS: [string, ...string[]][] = [
      ['localhost'],
      ['LOCALHOST.'],
      ['127.0.0.1'],
      ['127.1'],
      ['0x7f.1'],
      ['2130706433'],
      ['0'],
      ['10.0.0.1'],
      ['172.31.255.255'],
      ['192.168.1.1'],
      ['169.254.169.254'],
      ['100.64.0.1'],
      ['255.255.255.255'],
      ['[::1]'],
      ['[::]'],
      ['[::ffff:127.0.0.1]'],
      ['[::ffff:a9fe:a9fe]'],
      ['[64:ff9b::7f00:1]'],
      ['[2002:7f00:1::]'],
      ['[fe80::1]'],
      ['[fd00::1]'],
      ['[ff02::1]'],
      ['loop.example', '127.0.0.1'],
      ['metadata.example', '169.254.169.254'],
      ['six.example', '::1'],
      ['mapped.example', '::ffff:10.0.0.1'],
      ['both.example', '93.184.215.14', '10.0.0.1'],
    ]
    it.each(HOSTS)(
      'a repository in a private network at %s is refused, unless the operator allows it',
      async (host, ...addresses) => {
        if (addresses.length) names.set(host, addresses)
        const { id } = await strict.service.deps.db.space.findFirstOrThrow()
        const body = { type: 'git', url: `https://${host}:${git.port}/a.git` }
        const answer = await request(strict, 'POST', `/api/spaces/${id}/init`, { body })
        expectError(answer, 400, 'Invalid url. Must be the https address of a public repository')
        expect(answer.body.detail).toContain('its host is unknown, or leads to a private network')
        expect(git.requests).toEqual([])
      },
    )
  })
})

describe('the environment of a space', () => {
  const set = (who: Member, id: string, environmentVariables: unknown, headers = {}) =>
    post(who, `/api/spaces/${id}/environment`, { environmentVariables }, headers)

  it('consists of its secrets', async () => {
    const id = await createSpace()
    const { status, body } = await set(owner, id, { API_KEY: 'opaque', B: '{"c":1}' })
    expect([status, body]).toEqual([200, { success: true, keys: ['API_KEY', 'B'], count: 2 }])
    const { body: listed } = await request(server, 'GET', `/api/v1/spaces/${id}/secrets`, { token: owner.token })
    expect(listed).toMatchObject({ spaceId: id, secrets: ['API_KEY', 'B'] })
    const space = await request(server, 'GET', `/api/v1/spaces/${id}`, { token: owner.token })
    expect(space.body.space.secretKeys).toEqual(['API_KEY', 'B'])
  })

  it('is for its owner and for admins with the scope', async () => {
    const id = await createSpace()
    const scoped = await server.member({
      organization: 'Acme',
      role: 'owner',
      scopes: ['spaces:write', 'secrets:read'],
    })
    expectError(await set(member, id, { A: 'x' }), 403, FORBIDDEN)
    expectError(await set(scoped, id, { A: 'x' }), 403, FORBIDDEN)
    expectError(await set(owner, 'unknown', { A: 'x' }), 404, 'Space not found')
  })

  it('has names as secrets have, and is set once per Idempotency-Key', async () => {
    const id = await createSpace()
    expectError(await set(owner, id, undefined), 400, 'Missing required field: environmentVariables')
    expectError(await set(owner, id, { A: 5 }), 400, 'Invalid value for field: environmentVariables.A. Expected string')
    expect((await set(owner, id, { a: 'x' })).body.message).toMatch(/^Invalid secret name\. Must be UPPER_SNAKE_CASE/)
    const headers = { 'Idempotency-Key': 'environment' }
    const first = await set(owner, id, { A: 'x' }, headers)
    const again = await set(owner, id, { A: 'x' }, headers)
    expect([again.body, again.headers.get('idempotent-replayed')]).toEqual([first.body, 'true'])
    expectError(await set(owner, id, { A: 'y' }, headers), 422, 'Idempotency-Key was used with another request')
  })
})

describe('an agent is run', () => {
  const PATH = '/api/agent/execute'
  let characterId: string
  let spaceId: string
  beforeAll(async () => {
    characterId = (await post(owner, '/api/v1/agents', { name: 'Ada', systemPrompt: 'x' })).body.id
    spaceId = await createSpace()
  })

  it('an agent is run in a space, and continues in its session', async () => {
    const { status, body } = await post(owner, PATH, { characterId, spaceId, message: 'Hi' })
    expect([status, body]).toEqual([
      200,
      {
        success: true,
        executionId: expect.stringMatching(/^exec-/),
        chatId: expect.any(String),
        sessionId: expect.any(String),
        status: 'completed',
        stopReason: 'end_turn',
        result: expect.stringContaining('Turn 1'),
        warnings: [],
      },
    ])
    const { sessionId } = body
    const next = await post(owner, PATH, {
      characterId,
      spaceId,
      sessionId,
      message: 'Hi',
      orgId: owner.organizationId,
    })
    expect(next.body).toMatchObject({ sessionId, chatId: body.chatId, result: expect.stringContaining('Turn 2') })
    const path = `/api/v1/executions/${body.executionId}`
    const { execution } = (await request(server, 'GET', path, { token: owner.token })).body
    expect(execution).toMatchObject({ agentId: characterId, spaceId, message: 'Hi' })
  })

  it('an agent is run with a stream of its events, and in the background', async () => {
    const body = { characterId, spaceId, message: 'Hi' }
    const options = { method: 'POST', token: owner.token, body: { ...body, stream: true } }
    const events = await (await openStream(server, PATH, options)).rest()
    expect([events[0]?.event, events.at(-1)?.event]).toEqual(['meta', 'result'])
    expect((await post(owner, PATH, { ...body, background: true })).body).not.toHaveProperty('result')
  })

  it.each<[string, () => object, number, string]>([
    ['no agent', () => ({ spaceId, message: 'Hi' }), 400, 'Missing required field: characterId'],
    ...['', ' ', null].map((characterId): [string, () => object, number, string] => [
      `${JSON.stringify(characterId)} for an agent`,
      () => ({ characterId, spaceId, message: 'Hi' }),
      400,
      'Missing required field: characterId',
    ]),
    ['no message', () => ({ characterId, spaceId }), 400, 'Missing required field: message'],
    ['an unknown agent', () => ({ characterId: 'x', spaceId, message: 'Hi' }), 404, 'Agent not found'],
    ['an unknown space', () => ({ characterId, spaceId: 'x', message: 'Hi' }), 404, 'Space not found'],
    ['an empty space', () => ({ characterId, spaceId: '', message: 'Hi' }), 404, 'Space not found'],
    ['an empty session', () => ({ characterId, spaceId, sessionId: '', message: 'Hi' }), 404, 'Session not found'],
    ['an unknown session', () => ({ characterId, spaceId, sessionId: 'x', message: 'Hi' }), 404, 'Session not found'],
    ['another organization', () => ({ characterId, spaceId, message: 'Hi', orgId: 'x' }), 403, FORBIDDEN],
  ])('not with %s', async (_, body, status, message) => {
    expectError(await post(owner, PATH, body()), status, message)
  })

  it('only by callers with permission', async () => {
    const scoped = await server.member({ organization: 'Acme', scopes: ['agents:write', 'executions:write'] })
    const stranger = await server.member({ organization: 'Strangers' })
    expectError(await post(scoped, PATH, { characterId, message: 'Hi' }), 403, FORBIDDEN)
    expectError(await post(stranger, PATH, { characterId, message: 'Hi' }), 404, 'Agent not found')
    expect((await post(member, PATH, { characterId, message: 'Hi' })).status).toBe(200)
  })

  it('an agent is run once per Idempotency-Key, which belongs to this path', async () => {
    const headers = { 'Idempotency-Key': 'execute' }
    const body = { characterId, spaceId, message: 'Hi' }
    const first = await post(owner, PATH, body, headers)
    const again = await post(owner, PATH, body, headers)
    expect([again.body, again.headers.get('idempotent-replayed')]).toEqual([first.body, 'true'])
    const other = (await post(owner, '/api/v1/agents', { name: 'Ben', systemPrompt: 'x' })).body.id
    const reused = await post(owner, PATH, { ...body, characterId: other }, headers)
    expectError(reused, 422, 'Idempotency-Key was used with another request')
    const elsewhere = await post(owner, `/api/v1/agents/${characterId}/execute`, { message: 'Hi', spaceId }, headers)
    expect(elsewhere.body.executionId).not.toBe(first.body.executionId)
  })
})

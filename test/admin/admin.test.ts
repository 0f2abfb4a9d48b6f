import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import Sqlite from 'better-sqlite3'
import { describe, expect, test } from 'vitest'
import { runAdmin } from '../../src/admin/run.ts'
import { SCOPE_ADVICE } from '../../src/auth/scopes.ts'
import { setPassword } from '../support/browser-session.ts'
import { createFolder } from '../support/folder.ts'
import { runSql, startPostgres } from '../support/postgres.ts'
import { hasPostgres } from '../support/postgres-shared.ts'
import { runProgram } from '../support/process.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

const PROGRAM = join(import.meta.dirname, '..', '..', 'src', 'admin', 'main.ts')

const server = await use(startServer())

const run = (...argv: string[]) => runAdmin(argv, { DATA_DIR: server.folder })

/** Runs a command with --json. Returns its output. */
async function json(...argv: string[]): Promise<any> {
  const { code, out, err } = await run(...argv, '--json')
  expect([code, err]).toEqual([0, ''])
  return JSON.parse(out)
}

/** Creates an organization with an owner, `owner@<slug>`. */
async function createOrganization(name: string) {
  const { organization } = await json('org', 'create', name)
  await json('user', 'add', `owner@${organization.slug}`, '--org', organization.slug, '--role', 'owner')
  return organization as { id: string; slug: string }
}

describe('a sign-in link', () => {
  const use = (url: string) =>
    request(server, 'POST', '/api/auth/link', { token: null, body: { code: new URL(url).hash.slice(1) } })

  test('signs in the named user, or else the first owner', async () => {
    const { organization } = await json('org', 'create', 'Linked')
    await json('user', 'add', 'linked@example.com', '--org', organization.slug, '--role', 'member')
    const named = await json('sign-in-link', '--user', 'Linked@example.com')
    expect(named.url).toMatch(/^http:\/\/localhost:3000\/app\/welcome#[0-9A-Za-z]{43}$/)
    expect((await use(named.url)).body.user.email).toBe('linked@example.com')
    expect((await use(named.url)).status).toBe(401)
    expect((await use((await json('sign-in-link')).url)).body.user.email).toBe('owner@localhost')
    const withoutPort = await runAdmin(['sign-in-link'], { DATA_DIR: server.folder, PORT: '0' })
    expect(withoutPort).toMatchObject({ code: 1, out: '', err: expect.stringMatching(/^PORT is 0, .+ Set PORT to/) })
    expect(await run('sign-in-link', '--user', 'nobody@example.com')).toEqual(
      failed('There is no user with the e-mail address nobody@example.com. List them: npm run admin -- user list'),
    )
  })

  test('is not made for a service account, which also joins no other organization', async () => {
    const { organizationId, token } = await server.member({ organization: 'Serviced', role: 'owner' })
    const path = `/api/v1/organizations/${organizationId}/service-accounts`
    const { id } = (await request(server, 'POST', path, { token, body: { name: 'CI', role: 'member' } })).body
    const { email } = await server.service.deps.db.user.findUniqueOrThrow({ where: { id }, select: { email: true } })
    const refused = failed(`${email} is a service account, which acts by its keys alone. Name a person.`)
    expect(await run('sign-in-link', '--user', email)).toEqual(refused)
    const { organization } = await json('org', 'create', 'Unserviced')
    expect(await run('user', 'add', email, '--org', organization.slug, '--role', 'owner')).toEqual(refused)
  })

  test('is advised for an account with an unverified address that joins another organization', async () => {
    const { db } = server.service.deps
    const email = 'squatted@example.com'
    const { userId, tokenId } = await server.member({ email, organization: 'Squatters' })
    await setPassword(server, userId, 'eleven blue kettles sing')
    await db.user.updateMany({ where: { id: userId }, data: { emailVerified: false } })
    const { organization } = await json('org', 'create', 'Victims')
    const add = (slug: string) => run('user', 'add', email, '--org', slug, '--role', 'owner')
    expect((await add('squatters')).out).not.toContain('unverified')
    expect((await add(organization.slug)).out).toContain(`sign-in-link --user ${email}`)
    expect(await db.user.findUnique({ where: { id: userId } })).toMatchObject({
      passwordHash: null,
      emailVerified: true,
    })
    expect(await db.token.findUnique({ where: { id: tokenId } })).toMatchObject({ revokedAt: expect.any(Date) })
    expect((await add(organization.slug)).out).not.toContain('unverified')
  })

  test('removes the password if asked', async () => {
    const { email, userId } = { email: 'reset@example.com', ...(await server.member({ email: 'reset@example.com' })) }
    await setPassword(server, userId, 'eleven blue kettles sing')
    const { url } = await json('sign-in-link', '--user', email, '--reset-password')
    expect((await use(url)).body.user.hasPassword).toBe(false)
  })
})

test('organizations and users are listed, with members, roles and passwords', async () => {
  const { organization } = await json('org', 'create', 'Listed')
  const { userId } = await server.member({ email: 'listed@example.com', organization: 'Listed', role: 'admin' })
  await setPassword(server, userId, 'eleven blue kettles sing')
  const { organizations } = await json('org', 'list')
  expect(organizations).toContainEqual({
    id: organization.id,
    name: 'Listed',
    slug: 'listed',
    members: 1,
    createdAt: expect.any(String),
  })
  const { users } = await json('user', 'list', '--org', 'listed')
  expect(users).toMatchObject([
    { id: userId, email: 'listed@example.com', hasPassword: true, organizations: [{ slug: 'listed', role: 'admin' }] },
  ])
  expect(JSON.stringify(users)).not.toContain('argon2')
  expect((await json('user', 'list')).users.length).toBeGreaterThan(1)
  expect((await run('user', 'list')).out).toContain('listed (admin)')
})

describe('organizations', () => {
  test('organizations with the same name get different slugs', async () => {
    const first = await json('org', 'create', ' Café & Söhne ')
    const second = await json('org', 'create', 'Café & Söhne')
    expect(first.organization).toMatchObject({ name: 'Café & Söhne', slug: 'cafe-sohne' })
    expect(second.organization).toEqual({ id: expect.any(String), name: 'Café & Söhne', slug: 'cafe-sohne-2' })
  })

  test('get the requested slug, or are refused if it is taken', async () => {
    expect((await json('org', 'create', 'One', '--slug', 'wanted')).organization.slug).toBe('wanted')
    expect(await run('org', 'create', 'Two', '--slug', 'wanted')).toEqual(
      failed('The slug wanted is taken. Give another with --slug.'),
    )
  })

  test.each(['NFC', 'NFD'])(
    'organizations with a Hangul slug are found by it, typed and stored in either form: %s',
    async (form) => {
      const name = `한국 연구소 ${form}`
      const slug = `한국-연구소-${form.toLowerCase()}`
      const { organization } = await json('org', 'create', name)
      expect(organization.slug).toBe(slug)
      await server.service.deps.db.organization.update({
        where: { id: organization.id },
        data: { slug: slug.normalize(form) },
      })
      for (const typed of [slug, slug.normalize('NFD')]) {
        const added = await json('user', 'add', 'kim@example.com', '--org', typed, '--role', 'owner')
        expect(added.organization.id).toBe(organization.id)
        const twin = await run('org', 'create', 'Twin', '--slug', typed)
        expect(twin).toEqual(failed(`The slug ${slug} is taken. Give another with --slug.`))
      }
      expect((await json('org', 'create', name)).organization.slug).toBe(`${slug}-2`)
      expect((await json('org', 'create', 'Other', '--slug', `${slug.normalize('NFD')}-3`)).organization.slug).toBe(
        `${slug}-3`,
      )
    },
  )
})

describe('users', () => {
  test('users who are added again get the new role, and stay one user in all organizations', async () => {
    const [one, two] = [await createOrganization('Roles'), await createOrganization('Other roles')]
    const first = await json('user', 'add', 'Ada@Example.com', '--org', one.slug, '--role', 'member')
    const second = await json('user', 'add', 'ada@example.com', '--org', one.slug, '--role', 'admin')
    const third = await json('user', 'add', 'ada@example.com', '--org', two.slug, '--role', 'owner')
    expect(first).toMatchObject({ user: { email: 'ada@example.com' }, organization: one, role: 'member' })
    expect([second.role, second.user]).toEqual(['admin', first.user])
    expect(third.user).toEqual(first.user)
  })

  test('users who were removed and added again do not regain their tokens', async () => {
    const { slug } = await createOrganization('Again')
    await json('user', 'add', 'eve@example.com', '--org', slug, '--role', 'member')
    const { id } = await json('token', 'create', '--user', 'eve@example.com', '--org', slug, '--name', 'old')
    const revoked = async () =>
      (await json('token', 'list')).tokens.find((token: { id: string }) => token.id === id).revokedAt
    await json('user', 'add', 'eve@example.com', '--org', slug, '--role', 'admin')
    expect(await revoked()).toBe(null)
    await json('user', 'remove', 'eve@example.com', '--org', slug)
    await json('user', 'add', 'eve@example.com', '--org', slug, '--role', 'member')
    expect(await revoked()).not.toBe(null)
  })

  test('users who are the last owner keep their role and membership', async () => {
    const { slug } = await createOrganization('Owned')
    const refused = failed('An organization needs an owner. Make another member an owner first.')
    expect(await run('user', 'remove', `owner@${slug}`, '--org', slug)).toEqual(refused)
    expect(await run('user', 'add', `owner@${slug}`, '--org', slug, '--role', 'admin')).toEqual(refused)
  })

  test('users who own an organization together cannot both be removed at once', async () => {
    const { slug } = await createOrganization('Twice owned')
    await json('user', 'add', `second@${slug}`, '--org', slug, '--role', 'owner')
    const removals = await Promise.all(
      ['owner', 'second'].map((name) => run('user', 'remove', `${name}@${slug}`, '--org', slug)),
    )
    expect(removals.map(({ code }) => code).sort()).toEqual([0, 1])
  })

  test('users who are removed lose their open tasks, and keep their completed ones', async () => {
    const { slug } = await createOrganization('Tasks')
    const { user } = await json('user', 'add', 'worker@example.com', '--org', slug, '--role', 'member')
    const { token } = await json('token', 'create', '--user', `owner@${slug}`, '--org', slug, '--name', 'x')
    const as = { url: server.url, token }
    const create = (title: string) => request(as, 'POST', '/api/v1/tasks', { body: { title, assignTo: user.id } })
    const { body: done } = await create('done')
    for (const status of ['in_progress', 'completed']) {
      await request(as, 'PATCH', `/api/v1/tasks/${done.id}`, { body: { status } })
    }
    await create('open')
    expect((await json('user', 'remove', 'worker@example.com', '--org', slug)).tasks).toBe(1)
    const { body } = await request(as, 'GET', '/api/v1/tasks')
    const assignees = body.tasks.map((task: { title: string; assignedTo: string | null }) => [
      task.title,
      task.assignedTo,
    ])
    expect(new Map(assignees)).toEqual(
      new Map([
        ['open', null],
        ['done', user.id],
      ]),
    )
  })

  test('users who are removed lose only this organization', async () => {
    const [one, two] = [await createOrganization('Left'), await createOrganization('Kept')]
    const tokens = []
    for (const { slug } of [one, two]) {
      await json('user', 'add', 'eve@example.com', '--org', slug, '--role', 'member')
      tokens.push((await json('token', 'create', '--user', 'eve@example.com', '--org', slug, '--name', 'eve')).token)
    }
    const { removed, user } = await json('user', 'remove', 'eve@example.com', '--org', one.slug)
    expect([removed, user.email]).toEqual([true, 'eve@example.com'])
    const answers = tokens.map((token) => request({ url: server.url, token }, 'GET', '/api/v1/agents'))
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([403, 200])
  })
})

describe('tokens', () => {
  const owner = ['--user', 'owner@localhost', '--org', 'default', '--name', 'ci']

  test('work with their scopes only, and their last use is listed', async () => {
    const { id, token } = await json('token', 'create', ...owner, '--scope', 'agents:read', '--scope', 'agents:execute')
    const as = { url: server.url, token }
    expect((await request(as, 'GET', '/api/v1/agents')).status).toBe(200)
    expect((await request(as, 'POST', '/api/v1/agents', { body: { name: 'x', systemPrompt: 'x' } })).status).toBe(403)
    const { tokens } = await json('token', 'list')
    expect(tokens.find((token: { id: string }) => token.id === id)).toEqual({
      id,
      name: 'ci',
      preview: `${token.slice(0, 8)}…`,
      scopes: ['agents:read', 'agents:execute'],
      user: 'owner@localhost',
      organization: 'default',
      createdAt: expect.any(String),
      expiresAt: null,
      lastUsedAt: expect.any(String),
      revokedAt: null,
    })
  })

  test('are printed once with id and expiry, and are not stored in plain form', async () => {
    const before = Date.now()
    const answer = await json('token', 'create', ...owner, '--expires', '30')
    expect(Object.keys(answer)).toEqual(['id', 'token', 'expiresAt'])
    const lifetime = Date.parse(answer.expiresAt) - before
    expect(Math.round(lifetime / 86_400_000)).toBe(30)
    const row = await server.service.deps.db.token.findUniqueOrThrow({ where: { id: answer.id } })
    expect(JSON.stringify(row)).not.toContain(answer.token.slice(8))
  })

  test.each([
    ['2020-01-01', '2020-01-01T00:00:00.000Z'],
    ['2020-01-01T12:00:00+02:00', '2020-01-01T10:00:00.000Z'],
  ])('tokens with --expires-at %s are refused after that time', async (at, expiresAt) => {
    const answer = await json('token', 'create', ...owner, '--expires-at', at)
    expect(answer.expiresAt).toBe(expiresAt)
    const { status, body } = await request({ url: server.url, token: answer.token }, 'GET', '/api/v1/agents')
    expect([status, body.message]).toEqual([401, 'Token expired'])
  })

  test('tokens that are revoked are refused, and stay the same when revoked again', async () => {
    const { id, token } = await json('token', 'create', ...owner)
    const first = await json('token', 'revoke', id)
    expect(await json('token', 'revoke', id)).toEqual(first)
    const { status, body } = await request({ url: server.url, token }, 'GET', '/api/v1/agents')
    expect([status, body.message]).toEqual([401, 'Unauthorized. Invalid or expired token'])
  })

  test('tokens with hostile names send no control characters to a terminal', async () => {
    const { id } = await json('token', 'create', ...owner)
    await server.service.deps.db.token.update({ where: { id }, data: { name: 'a\x1b[2J\nb' } })
    const { out } = await run('token', 'list')
    expect(out).toContain('a?[2J?b')
  })
})

test('every change is in the audit log, by the operator', async () => {
  const { id: organizationId, slug } = await createOrganization('Audited')
  const { user } = await json('user', 'add', 'ada@example.com', '--org', slug, '--role', 'member')
  const token = await json('token', 'create', '--user', 'ada@example.com', '--org', slug, '--name', 'x')
  await json('token', 'revoke', token.id)
  await json('token', 'revoke', token.id)
  await json('user', 'remove', 'ada@example.com', '--org', slug)
  const events = await server.service.deps.db.auditEvent.findMany({ where: { organizationId }, orderBy: { at: 'asc' } })
  expect(new Set(events.map(({ actor }) => actor))).toEqual(new Set(['operator']))
  expect(events.map(({ action, target }) => [action, target])).toEqual([
    ['organization.create', organizationId],
    ['member.add', expect.any(String)],
    ['member.add', user.id],
    ['key.create', token.id],
    ['key.revoke', token.id],
    ['member.remove', user.id],
  ])
})

describe('backups', () => {
  test('a backup made beside a writing server starts another server, with the same token', async () => {
    await using folder = await createFolder()
    let writing = true
    const create = (name: string) =>
      request(server, 'POST', '/api/v1/agents', { body: { name, systemPrompt: 'You are one of many.' } })
    const before = await create('before')
    const writer = (async () => {
      while (writing) await create('during')
    })()
    const file = join(folder.path, 'muster.db')
    const env = { DATA_DIR: server.folder }
    const { out } = await runProgram('src/admin/main.ts', ['backup', file, '--json'], folder.path, env)
    const { bytes, ...answer } = JSON.parse(out)
    writing = false
    await writer
    expect(answer).toEqual({ file })
    const { mode, size } = await stat(file)
    expect([mode & 0o777, size]).toEqual([0o600, bytes])
    const ENCRYPTION_KEY = (await readFile(join(server.folder, 'encryption.key'), 'utf8')).trim()
    await using copy = await startServer({ ENCRYPTION_KEY }, { folder: folder.path })
    const found = await request({ url: copy.url, token: server.token }, 'GET', `/api/v1/agents/${before.body.id}`)
    expect(found.body.agent.name).toBe('before')
  })

  test('leave an existing file alone, and report a file that cannot be made', async () => {
    await using folder = await createFolder()
    const file = join(folder.path, 'backup.db')
    await json('backup', file)
    const { size } = await stat(file)
    expect(await run('backup', file)).toEqual(failed(`${file} already exists. Name a new file for the backup.`))
    expect((await stat(file)).size).toBe(size)
    const nowhere = join(folder.path, 'nowhere', 'backup.db')
    const missing = `There is no folder ${join(folder.path, 'nowhere')}. Make it first, or name another.`
    expect(await run('backup', nowhere)).toEqual(failed(missing))
    const inside = failed(`${folder.path} is a folder. Name a new file in it for the backup.`)
    expect(await run('backup', folder.path)).toEqual(inside)
    expect(await readdir(folder.path)).toEqual(['backup.db'])
  })

  test.skipIf(process.platform === 'win32')(
    'backups without enough space leave nothing, and report the place',
    async () => {
      await using folder = await createFolder()
      const file = join(folder.path, 'backup.db')
      const command = `ulimit -f 100 && exec "${process.execPath}" "${PROGRAM}" backup "${file}"`
      const env = { PATH: process.env.PATH, DATA_DIR: server.folder }
      const failure = await promisify(execFile)('bash', ['--norc', '-c', command], { env }).catch((error) => error)
      expect([failure.code, failure.stderr]).toEqual([1, `${file} cannot be written: disk I/O error\n`])
      expect(await readdir(folder.path)).toEqual([])
    },
  )

  test('backups that are killed before their end lack their final name', async () => {
    await using folder = await createFolder()
    await json('backup', join(folder.path, 'muster.db'))
    const source = new Sqlite(join(folder.path, 'muster.db'))
    source.exec(`CREATE TABLE "large" AS
      WITH "n" AS (SELECT 1 AS "i" UNION ALL SELECT "i" + 1 FROM "n" LIMIT 64) SELECT randomblob(1048576) FROM "n"`)
    source.close()
    const target = join(folder.path, 'backups')
    await mkdir(target)
    const child = spawn(process.execPath, [PROGRAM, 'backup', join(target, 'backup.db')], {
      env: { PATH: process.env.PATH, DATA_DIR: folder.path },
    })
    const begun = async () => {
      const sizes = (await readdir(target)).map(async (name) => (await stat(join(target, name))).size)
      return (await Promise.all(sizes)).some((size) => size > 0)
    }
    await expect.poll(begun, { interval: 1 }).toBe(true)
    child.kill('SIGKILL')
    const [code] = await once(child, 'exit')
    expect((await readdir(target)).includes('backup.db')).toBe(code === 0)
  })
})

const EARLIER = 'The database schema is from an earlier version of Muster. Start the server once to migrate it.'
const failed = (err: string) => ({ code: 1, out: '', err })
const member = ['--org', 'default', '--role', 'member']
const token = ['token', 'create', '--user', 'owner@localhost', '--org', 'default', '--name', 'x']

test.each([
  [['org', 'create', ' '], 'The name must not be empty.'],
  [['org', 'create', '!!!'], 'No slug can be made of !!!. Give one with --slug.'],
  [
    ['org', 'create', 'X', '--slug', 'A b'],
    'Not a slug: A b. Lower-case letters, digits and single hyphens, for example acme-2',
  ],
  [['user', 'add', 'ada', ...member], 'Not an e-mail address: ada. For example ada@example.com'],
  [
    ['user', 'add', 'a@b.c', '--org', 'nope', '--role', 'member'],
    'There is no organization with the slug nope. List them: npm run admin -- org list',
  ],
  [
    ['user', 'add', 'a@b.c', '--org', 'default', '--role', 'boss'],
    'Unknown role: boss. Give one of: owner, admin, member',
  ],
  [
    ['user', 'remove', 'no@b.c', '--org', 'default'],
    'There is no user with the e-mail address no@b.c. List them: npm run admin -- user list',
  ],
  [
    ['token', 'create', '--user', 'no@b.c', '--org', 'default', '--name', 'x'],
    'There is no user with the e-mail address no@b.c. List them: npm run admin -- user list',
  ],
  [[...token.slice(0, -1), ' '], 'The name must not be empty.'],
  [
    [...token, '--scope', 'agents:all'],
    `Unknown scope: agents:all. A scope is *, agents:execute, <resource>:read or <resource>:write. ${SCOPE_ADVICE}`,
  ],
  [[...token, '--expires', '1.5'], 'Not a number of days: 1.5. --expires takes 1 to 36500'],
  [[...token, '--expires', '0'], 'Not a number of days: 0. --expires takes 1 to 36500'],
  [
    [...token, '--expires-at', '2030-02-30'],
    'Not an ISO 8601 date or time: 2030-02-30. For example 2030-01-31 or 2030-01-31T12:00:00Z',
  ],
  [
    [...token, '--expires-at', '2030-01-31T12:00:00'],
    'Not an ISO 8601 date or time: 2030-01-31T12:00:00. For example 2030-01-31 or 2030-01-31T12:00:00Z',
  ],
  ...['9999-12-31T23:59:59-14:00', '0001-01-01T00:00:00+14:00', '0000-01-01'].map((at): [string[], string] => [
    [...token, '--expires-at', at],
    `Not a date in the years 1 to 9999 (UTC): ${at}`,
  ]),
  [[...token, '--expires', '1', '--expires-at', '2030-01-31'], 'Give --expires or --expires-at, not both.'],
  [['token', 'revoke', 'nope'], 'There is no token with the id nope. List them: npm run admin -- token list'],
])('a failure is reported in one line: %j', async (argv, message) => {
  expect(await run(...argv)).toEqual(failed(message))
})

test('a user gets no token in an organization without a membership there', async () => {
  const { slug } = await createOrganization('Foreign')
  const argv = ['token', 'create', '--user', 'owner@localhost', '--org', slug, '--name', 'x']
  expect(await run(...argv)).toEqual(
    failed(`owner@localhost is not a member of ${slug}. List its members: npm run admin -- user list --org ${slug}`),
  )
})

test.each([
  [[], /^No command\. See/],
  [['org', 'delete', 'x'], /^Unknown command: org delete\. There are org create, org list\. See/],
  [['token'], /^Unknown command: token\. There are token create, token list, token revoke\. See/],
  [['bakcup', 'x.db'], /^Unknown command: bakcup x\.db\. Did you mean backup\? See/],
  [['user', 'lst'], /^Unknown command: user lst\. Did you mean user list\? See/],
  [['org', 'create'], /^Missing argument. Usage: org create NAME/],
  [['tkoen', 'lst'], /^Unknown command: tkoen lst\. Did you mean token list\? See/],
  [['tken', 'x'], /^Unknown command: tken x\. There are token create, token list, token revoke\. See/],
  [['org', 'create', 'Two', 'words'], /^Unexpected argument: words\. Put quotes around a value with blanks\. Usage/],
  [['token', 'list', 'all'], /^Unexpected argument: all\. Usage/],
  [['user', 'add', 'a@b.c', '--org', 'default'], /^Missing option: --role/],
  [['token', 'list', '--org', 'default'], /^Unexpected option: --org/],
  [['token', 'list', '--verbose'], /^Unknown option '--verbose'/],
  [['user', 'remove', 'a@b.c', '--org'], /^Missing value after --org\. See/],
  [['user', 'list', '--org', '--json'], /^Missing value after --org\. See/],
  [['token', 'create', '--expires', '-1'], /^Missing value after --expires\. See/],
])('a wrong command line is reported in one line, with exit code 2: %j', async (argv, message) => {
  const { code, out, err } = await run(...argv)
  expect([code, out]).toEqual([2, ''])
  expect(err).toMatch(message)
  expect(err).not.toContain('\n')
})

test.each([[['--help']], [['help']], [['help', 'token']]])('%j lists every command', async (argv) => {
  const { code, out } = await run(...argv)
  expect(code).toBe(0)
  for (const usage of [
    'org create NAME',
    'user add EMAIL',
    'user remove EMAIL',
    'token create',
    'token list',
    'token revoke ID',
    'backup FILE',
  ]) {
    expect(out).toContain(`  ${usage}`)
  }
})

test.each([[['token', 'create', '--help']], [['help', 'token', 'create']]])(
  '%j explains that command',
  async (argv) => {
    const { code, out } = await run(...argv)
    expect(code).toBe(0)
    expect(out).toMatch(/^Usage: npm run admin -- token create --user EMAIL .*\[--json\]\n\nCreate a token, .*\.$/)
  },
)

test.skipIf(process.platform !== 'linux')('output that cannot be written is reported, with exit code 1', async () => {
  const into = async (target: string) => {
    const child = spawn('sh', ['-c', `"$0" "$1" token list ${target}`, process.execPath, PROGRAM], {
      env: { PATH: process.env.PATH, DATA_DIR: server.folder },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let err = ''
    child.stderr.on('data', (chunk) => {
      err += chunk
    })
    const [code] = await once(child, 'close')
    return { code, err }
  }
  const lost = await into('> /dev/full')
  expect(lost).toEqual({ code: 1, err: expect.stringMatching(/^The command succeeded, but its .* written: ENOSPC/) })
  expect(await into('| true')).toEqual({ code: 0, err: '' })
})

test('a command creates no database where no server has run', async () => {
  await using folder = await createFolder()
  const { code, err } = await runAdmin(['token', 'list'], { DATA_DIR: join(folder.path, 'data') })
  expect([code, err]).toEqual([1, expect.stringMatching(/^There is no database at .*muster\.db\. Start Muster once/)])
  expect(await readdir(folder.path)).toEqual([])
})

test('a command of another user than that of the server names the remedy', async ({ skip }) => {
  skip(process.getuid?.() !== 0, 'only root can be somebody else')
  const asNobody = (script: string, ...argv: string[]) =>
    runProgram(script, argv, '/', { DATA_DIR: server.folder }, 65534)
  skip((await asNobody('.config/guard.js')).code !== 0, 'others may not read this checkout')
  const { code, err } = await asNobody('src/admin/main.ts', 'org', 'list')
  expect([code, err]).toEqual([
    1,
    expect.stringMatching(/^EACCES: .*muster\.db'\. Run the command as the user of the server/),
  ])
})

test('only the command backup accepts a database of an earlier version, and migrates nothing', async () => {
  await using folder = await createFolder()
  const file = join(folder.path, 'muster.db')
  await json('backup', file)
  const migrations = 'SELECT "migration_name" FROM "_prisma_migrations" ORDER BY 1'
  const query = (file: string, sql: string): unknown[] => {
    const connection = new Sqlite(file)
    try {
      return connection.prepare(sql).pluck().all()
    } finally {
      connection.close()
    }
  }
  const last = query(file, migrations).at(-1)
  query(file, `DELETE FROM "_prisma_migrations" WHERE "migration_name" = '${last}' RETURNING 1`)
  const before = query(file, migrations)
  const env = { DATA_DIR: folder.path }
  const commands = [['token', 'list'], ['org', 'create', 'X'], ['rotate-key'], ['move', '--to', 'postgresql://nowhere']]
  for (const argv of commands) expect(await runAdmin(argv, env)).toEqual(failed(EARLIER))
  const copy = join(folder.path, 'copy.db')
  expect((await runAdmin(['backup', copy], env)).code).toBe(0)
  expect([query(file, migrations), query(copy, migrations)]).toEqual([before, before])
})

test('the program prints only the answer to stdout and problems to stderr, with an exit code', async () => {
  const env = { DATA_DIR: server.folder }
  const program = (...argv: string[]) => runProgram('src/admin/main.ts', argv, server.folder, env)
  const done = await program('token', 'list', '--json')
  expect([done.code, done.err, Object.keys(JSON.parse(done.out))]).toEqual([0, '', ['tokens']])
  expect(await program('token', 'revoke', 'x')).toEqual({
    code: 1,
    out: '',
    err: 'There is no token with the id x. List them: npm run admin -- token list\n',
  })
  const bad = await runProgram('src/admin/main.ts', ['token', 'list'], server.folder, {
    ...env,
    PORT: 'x',
    LOG_LEVEL: 'x',
  })
  expect([bad.code, bad.out]).toEqual([1, ''])
  // In the server's words, with nothing to start otherwise.
  expect(bad.err).toMatch(/^Invalid configuration:\n {2}PORT: Expected number\n {2}LOG_LEVEL: /)
})

test.runIf(hasPostgres)('the commands work on PostgreSQL, and leave backups to pg_dump', async () => {
  await using postgres = await startPostgres()
  await using folder = await createFolder()
  const env = {
    DATA_DIR: folder.path,
    DATABASE_URL: await postgres.createDatabase(),
    ENCRYPTION_KEY: Buffer.alloc(32, 1).toString('base64'),
  }
  expect(await runAdmin(['token', 'list'], env)).toEqual(failed('The database is empty. Start Muster once.'))
  expect(await runSql(env.DATABASE_URL, `SELECT FROM pg_tables WHERE schemaname = 'public'`)).toEqual([])
  await using other = await startServer(env, { folder: folder.path })
  const last = `"migration_name" = (SELECT max("migration_name") FROM "_prisma_migrations")`
  const setLast = (column: string) =>
    runSql(env.DATABASE_URL, `UPDATE "_prisma_migrations" SET ${column} WHERE ${last}`)
  await setLast('"rolled_back_at" = now()')
  expect(await runAdmin(['token', 'list'], env)).toEqual(failed(EARLIER))
  await setLast('"rolled_back_at" = NULL')
  const onPostgres = async (...argv: string[]) => JSON.parse((await runAdmin([...argv, '--json'], env)).out)
  const { organization } = await onPostgres('org', 'create', 'Acme')
  expect((await runAdmin(['org', 'create', 'x', '--slug', 'acme'], env)).err).toBe(
    'The slug acme is taken. Give another with --slug.',
  )
  for (const email of ['a@acme', 'b@acme']) await onPostgres('user', 'add', email, '--org', 'acme', '--role', 'owner')
  const { token } = await onPostgres('token', 'create', '--user', 'a@acme', '--org', 'acme', '--name', 'x')
  const { body } = await request({ url: other.url, token }, 'GET', '/api/v1/agents')
  expect([body.success, organization.slug]).toEqual([true, 'acme'])
  const removals = ['a', 'b'].map((name) => runAdmin(['user', 'remove', `${name}@acme`, '--org', 'acme'], env))
  expect((await Promise.all(removals)).map(({ code }) => code).sort()).toEqual([0, 1])
  expect((await runAdmin(['backup', join(folder.path, 'x')], env)).err).toMatch(/pg_dump/)
  await postgres.stop()
  const away = await runAdmin(['token', 'list'], env)
  const remedy = /^The database cannot be used: \S.*\. Start the database, or correct DATABASE_URL\.$/
  expect(away).toEqual(failed(expect.stringMatching(remedy) as never))
  await postgres.start()
})

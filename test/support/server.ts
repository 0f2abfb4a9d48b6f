import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe } from 'node:diagnostics_channel'
import { mkdtemp, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { expect, inject } from 'vitest'
import type { Role } from '../../src/db/client.ts'
import { createToken } from '../../src/keys/service.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { createLog } from '../../src/lib/log.ts'
import { addMember, createOrganization, toSlug } from '../../src/organizations/service.ts'
import { readSettings } from '../../src/settings.ts'
import { type Service, startService } from '../../src/start.ts'
import { postgresEnv } from './postgres.ts'
import { onPostgres, shareDatabase } from './postgres-shared.ts'
import { copySqlite } from './sqlite-shared.ts'

export type TestServer = AsyncDisposable & {
  url: string
  service: Service
  /** The first token: the owner of `default`, scope `*`. */
  token: string
  folder: string
  /** Settings of its database for another process, beside DATA_DIR. */
  databaseEnv: Record<string, string>
  /** Every SQL statement so far. Set `queries.length = 0` to restart the count. */
  queries: string[]
  /**
   * The statements of `work` and of its requests, without the server's periodic ones. All caches of callers are
   * empty before.
   */
  statementsOf(work: () => Promise<unknown>): Promise<string[]>
  /** Empties the cache of callers, as after any revocation. */
  forgetActors(): Promise<void>
  /** Every line of the log. */
  logs: string[]
  /** Creates a member of an organization, and the organization if necessary, with a token. */
  member(options?: MemberOptions): Promise<Member>
  /** Creates some of the {@link CAST}. */
  people<Name extends keyof typeof CAST>(...names: Name[]): Promise<Record<Name, Member>>
}

type MemberOptions = {
  organization?: string
  email?: string
  role?: Role
  scopes?: readonly string[]
  expiresAt?: Date
}

/** People of most tests: four of one organization, and the owner of another. */
const CAST = {
  owner: { organization: 'Acme', role: 'owner' },
  admin: { organization: 'Acme', role: 'admin' },
  ann: { organization: 'Acme' },
  ben: { organization: 'Acme' },
  eve: { organization: 'Evil & Co', role: 'owner' },
} satisfies Record<string, MemberOptions>

export type Member = { token: string; tokenId: string; userId: string; organizationId: string }

/** The recorder of statements: active for the work of `record` and requests that start before its disposal. */
const writtenDown = new AsyncLocalStorage<string[] | undefined>()
let current: string[] | undefined
subscribe('http.server.request.start', () => writtenDown.enterWith(current))

/** Calls a function. The statements of its requests are added as they happen, and no others. */
export function record<Result>(work: () => Result): Disposable & { statements: string[]; result: Result } {
  const statements: string[] = []
  current = statements
  const stop = () => {
    current = undefined
  }
  return { statements, result: writtenDown.run(statements, work), [Symbol.dispose]: stop }
}

/**
 * Starts the whole service in this process, over real HTTP on a free port, on a new database: an SQLite file, or one of
 * PostgreSQL if the environment has `DATABASE=postgresql`. The same folder has the same database again.
 */
export async function startServer(
  env: Record<string, string> = {},
  options: { clock?: Clock; folder?: string } = {},
): Promise<TestServer> {
  const folder = options.folder ?? (await mkdtemp(join(dirname(inject('sqlite')), 'test-')))
  const queries: string[] = []
  const logs: string[] = []
  const shared = onPostgres && !env.DATABASE_URL ? await shareDatabase(folder) : null
  if (!onPostgres && !env.DATABASE_URL) await copySqlite(folder)
  const databaseEnv = shared ? postgresEnv(shared.url, folder) : {}
  const settings = readSettings({
    NODE_ENV: 'test',
    DATA_DIR: folder,
    PORT: '0',
    LOG_LEVEL: 'debug',
    // Hanging runs of a test are not awaited at its end.
    DRAIN_TIMEOUT: '1',
    // Tests of retries set this.
    MODEL_RETRIES: '0',
    ...databaseEnv,
    ...env,
  })
  const log = createLog(settings.LOG_LEVEL, { write: (line: string) => void logs.push(line) })
  const service = await startService(settings, log, {
    onQuery(sql) {
      // Statements for notices between servers belong to no request.
      if (sql.includes('pg_notify')) return
      queries.push(sql)
      writtenDown.getStore()?.push(sql)
    },
    ...(options.clock && { clock: options.clock }),
  })
  const { db, clock, tokenKey } = service.deps

  async function forgetActors(): Promise<void> {
    const tokens = await db.token.findMany({ select: { id: true } })
    service.deps.bus.publish(
      'token',
      tokens.map(({ id }) => id),
    )
  }

  async function member({ organization = 'Default', ...rest }: MemberOptions = {}): Promise<Member> {
    const { email = `${crypto.randomUUID()}@example.com`, role = 'member', scopes = ['*'], expiresAt = null } = rest
    const now = clock.now()
    return db.$transaction(async (tx) => {
      const slug = toSlug(organization)
      const { id: organizationId } =
        (await tx.organization.findUnique({ where: { slug } })) ??
        (await createOrganization(tx, { name: organization, slug }, now))
      const { id: userId } = await addMember(tx, organizationId, email, role, now)
      const input = { organizationId, userId, name: 'test', scopes, expiresAt }
      const {
        token,
        row: { id: tokenId },
      } = await createToken(tx, { tokenKey, prefix: settings.TOKEN_PREFIX, now }, input)
      return { token, tokenId, userId, organizationId }
    })
  }

  return {
    url: service.url,
    service,
    token: service.firstToken ?? '',
    folder,
    databaseEnv,
    queries,
    async statementsOf(work) {
      await forgetActors()
      // The use of a token is stored once a minute, which is no statement of this work.
      const { clock, db } = service.deps
      await db.token.updateMany({ where: { lastUsedAt: { not: null } }, data: { lastUsedAt: clock.now() } })
      using recorded = record(work)
      await recorded.result
      // Every authenticated request takes at least one statement. None means that the recorder was inactive.
      expect(recorded.statements).not.toEqual([])
      return recorded.statements
    },
    forgetActors,
    logs,
    member,
    async people(...names) {
      const people: Partial<Record<keyof typeof CAST, Member>> = {}
      for (const name of names) people[name] = await member(CAST[name])
      return people as Required<typeof people>
    },
    async [Symbol.asyncDispose]() {
      await service.stop()
      if (options.folder) return
      await shared?.drop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

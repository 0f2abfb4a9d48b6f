import type { EventEmitter } from 'node:events'
import { Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { Client, type PoolClient } from 'pg'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { openDatabase } from '../../src/db/client.ts'
import { createLanes } from '../../src/db/postgresql/lanes.ts'
import { openPool } from '../../src/db/postgresql/pool.ts'
import { runSql } from '../support/postgres.ts'
import { hasPostgres, shareDatabase } from '../support/postgres-shared.ts'

describe.runIf(hasPostgres)('short queries of PostgreSQL that share a connection', () => {
  let url: string
  const cleanup = new AsyncDisposableStack()
  beforeAll(async () => {
    const database = cleanup.adopt(await shareDatabase(), ({ drop }) => drop())
    url = database.url
  })
  afterAll(() => cleanup.disposeAsync())

  it('never wait for a query that was slow before', async () => {
    await runSql(
      url,
      `CREATE FUNCTION slow(ms int) RETURNS int LANGUAGE plpgsql AS $$
      BEGIN
        PERFORM pg_sleep(ms / 1000.0), pg_advisory_xact_lock_shared(7);
        RETURN ms;
      END $$`,
    )
    const pool = openPool(url, { max: 4, pipeline: true })
    const holder = new Client({ connectionString: url })
    await holder.connect()
    try {
      const { ask } = createLanes(pool)
      const query = (sql: string, value: number) => ask({ sql, values: [`${value}`], name: sql, returns: true })
      const short = () => query('SELECT $1::int', 1)
      for (let left = 10; left; left--) await short()
      for (let left = 2; left; left--) await query('SELECT slow($1)', 30)
      await holder.query('SELECT pg_advisory_lock(7)')
      let isWaiting = true
      const slow = query('SELECT slow($1)', 0).finally(() => (isWaiting = false))
      const locked = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
      await expect.poll(async () => (await runSql(url, locked)).length).toBe(1)
      for (let left = 3; left; left--) await Promise.all(Array.from({ length: 16 }, short))
      expect(isWaiting).toBe(true)
      await holder.query('SELECT pg_advisory_unlock(7)')
      await slow
    } finally {
      await holder.end()
      await pool.end()
    }
  })

  it('are answered together, and described once, if they are asked in one turn', async () => {
    // Every query is short by a clock that stands still.
    const stopped = vi.spyOn(performance, 'now').mockReturnValue(0)
    const pool = openPool(url, { max: 2, pipeline: true })
    const seen = { readyForQuery: 0, rowDescription: 0 }
    const clients = new Set<PoolClient>()
    const take = async () => {
      const client = await pool.take()
      if (clients.has(client)) return client
      clients.add(client)
      const { connection } = client as unknown as { connection: EventEmitter }
      connection.on('readyForQuery', () => seen.readyForQuery++)
      connection.on('rowDescription', () => seen.rowDescription++)
      return client
    }
    try {
      const { ask } = createLanes({ ...pool, take })
      const query = (value: number) => ask({ sql: 'SELECT $1::int', values: [`${value}`], name: 'q', returns: true })
      for (let left = 10; left; left--) await query(1)
      Object.assign(seen, { readyForQuery: 0, rowDescription: 0 })
      const answers = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(query))
      expect(answers.map(({ rows }) => rows[0]![0])).toEqual(['1', '2', '3', '4', '5', '6', '7', '8'])
      expect(answers.map(({ fields }) => fields[0]!.name)).toEqual(Array(8).fill('int4'))
      expect(seen).toEqual({ readyForQuery: 1, rowDescription: 0 })
    } finally {
      stopped.mockRestore()
      await pool.end()
    }
  })

  it('are asked once if they are equal, and again after they were sent', async () => {
    const stopped = vi.spyOn(performance, 'now').mockReturnValue(0)
    const pool = openPool(url, { max: 2, pipeline: true })
    try {
      const { ask } = createLanes(pool)
      const query = async (value: string | null) => {
        const sql = 'SELECT gen_random_uuid(), $1::text'
        const { rows } = await ask({ sql, values: [value], name: 'q', returns: true })
        return rows[0]!.join()
      }
      for (let left = 10; left; left--) await query('a')
      const [a, same, b, nothing, word] = await Promise.all(['a', 'a', 'b', null, 'null'].map(query))
      expect(same).toBe(a)
      expect(new Set([a, b, nothing, word]).size).toBe(4)
      const first = query('a')
      await setImmediate()
      expect(await query('a')).not.toBe(await first)
    } finally {
      stopped.mockRestore()
      await pool.end()
    }
  })

  it('fail alone if one of those that are sent together fails', async () => {
    const pool = openPool(url, { max: 2, pipeline: true })
    try {
      const { ask } = createLanes(pool)
      const query = (value: number) =>
        ask({ sql: 'SELECT 6 / $1::int', values: [`${value}`], name: 'q', returns: true }).then(
          ({ rows }) => rows[0]![0],
          ({ code }) => code,
        )
      for (let left = 10; left; left--) await query(1)
      for (let left = 2; left; left--) {
        expect(await Promise.all([1, 0, 3, 0, 6].map(query))).toEqual(['6', '22012', '2', '22012', '1'])
      }
    } finally {
      await pool.end()
    }
  })

  it('reach settings that were changed for their role within ten minutes, also under load', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const { client: db, close } = await openDatabase({ DATA_DIR: '', DATABASE_URL: url, DATABASE_POOL_SIZE: 1 })
    const setting = async () => (await db.$queryRaw<{ work_mem: string }[]>`SHOW work_mem`)[0]?.work_mem
    try {
      const before = await setting()
      await runSql(
        url,
        `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 77777', current_database()); END $$`,
      )
      // A connection that is idle for ten seconds would be closed anyway.
      for (let seconds = 0; seconds < 600; seconds += 5) {
        expect(await setting()).toBe(before)
        vi.advanceTimersByTime(5_000)
      }
      expect(await setting()).toBe('77777kB')
    } finally {
      vi.useRealTimers()
      await close()
    }
  })

  it('are sent in one write if they are asked in one turn', async () => {
    const source = { DATA_DIR: '', DATABASE_URL: url, DATABASE_POOL_SIZE: 2 }
    const { client, close } = await openDatabase(source)
    const port = Number(new URL(url).port)
    let writes = 0
    const spies = (['_write', '_writev'] as const).map((name) => {
      const write = Socket.prototype[name] as (...args: unknown[]) => void
      return vi.spyOn(Socket.prototype, name).mockImplementation(function (this: Socket, ...args: unknown[]) {
        if (this.remotePort === port) writes++
        write.apply(this, args)
      })
    })
    try {
      const find = () => client.organization.findMany({ where: { slug: 'none' }, select: { id: true } })
      // The first ones have connections of their own, because their time is not known.
      const writesOfBurst = async () => {
        writes = 0
        await Promise.all(Array.from({ length: 8 }, find))
        return writes
      }
      await expect.poll(writesOfBurst).toBe(1)
    } finally {
      for (const spy of spies) spy.mockRestore()
      await close()
    }
  })
})

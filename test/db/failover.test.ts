import { pino } from 'pino'
import { expect, it } from 'vitest'
import { createPostgresBus } from '../../src/bus/postgres.ts'
import { openDatabase } from '../../src/db/client.ts'
import { isUnavailable } from '../../src/lib/database-errors.ts'
import { createFolder } from '../support/folder.ts'
import { startPostgres } from '../support/postgres.ts'
import { hasPostgres } from '../support/postgres-shared.ts'

it.runIf(hasPostgres)(
  'writes and notices continue on the standby that is promoted, and no commit is lost',
  async () => {
    await using postgres = await startPostgres()
    await using standby = await postgres.addStandby()
    await using folder = await createFolder()
    // The standby comes first, so every connection has to pass it.
    const listed = standby.beside(await postgres.createDatabase()).replace(/@([^,]+),([^/]+)/, '@$2,$1')
    const url = `${listed}?target_session_attrs=read-write`
    const { client: db, close } = await openDatabase({
      DATA_DIR: folder.path,
      DATABASE_URL: url,
      DATABASE_POOL_SIZE: 4,
    })
    const bus = createPostgresBus({ url, db, log: pino({ level: 'silent' }) })
    try {
      await expect.poll(bus.state).toBe('listening')
      const kept: string[] = []
      let count = 0
      /** Writes by group commit, and in a transaction that asks first. Returns the failures. */
      const write = async () => {
        const ids = Array.from({ length: 8 }, () => `o${count++}`)
        const data = (id: string) => ({ id, name: id, slug: id, createdAt: new Date() })
        const results = await Promise.allSettled(
          ids.map((id, index) =>
            db.$transaction(async (tx) => {
              if (index % 2) await tx.organization.count()
              await tx.organization.createMany({ data: data(id) })
            }),
          ),
        )
        kept.push(...ids.filter((_, index) => results[index]?.status === 'fulfilled'))
        return results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []))
      }
      expect(await write()).toEqual([])
      const during = write()
      await postgres.crash()
      const failures = [...(await during), ...(await write())]
      expect(failures.length).toBeGreaterThanOrEqual(8)
      expect(failures.filter((error) => !isUnavailable(error))).toEqual([])
      await standby.promote()
      await expect.poll(write).toEqual([])
      await expect.poll(bus.state).toBe('listening')
      const found = await db.organization.findMany({ where: { id: { in: kept } }, select: { id: true } })
      expect(found.length).toBe(kept.length)
    } finally {
      await bus.stop()
      await close()
    }
  },
)

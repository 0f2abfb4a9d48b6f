import { type Database, Prisma } from '../src/db/client.ts'

type Copies = {
  table: string
  /** A row of the table: its columns. */
  row: object
  /** The rows to copy: SQL after WHERE, by default all. */
  where?: string
  /** Number of copies of each row. */
  count: number
  /** Columns that differ: SQL of the row's columns and of the copy's number `n`, from 1. */
  changes: Record<string, string>
  /** Times that differ: how much earlier (ms). */
  earlier?: Record<string, string>
}

/** Copies rows of a table, in one statement that both databases understand. */
export async function addCopies({ client, kind }: Database, copies: Copies): Promise<void> {
  const { table, row, where = 'TRUE', count, changes, earlier = {} } = copies
  const millisecond = kind === 'sqlite' ? '1' : "INTERVAL '1 millisecond'"
  const value = (name: string) =>
    earlier[name] ? `"${name}" - (${earlier[name]}) * ${millisecond}` : (changes[name] ?? `"${name}"`)
  const names = Object.keys(row)
  await client.$executeRaw(
    Prisma.raw(`
      INSERT INTO "${table}" (${names.map((name) => `"${name}"`).join(', ')})
      WITH RECURSIVE numbers(n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < ${count})
      SELECT ${names.map(value).join(', ')} FROM (SELECT * FROM "${table}" WHERE ${where}) AS "originals", numbers`),
  )
  // The service does this by itself a minute later.
  if (kind === 'postgresql') await client.$executeRaw(Prisma.raw(`ANALYZE "${table}"`))
}

import { type Database, Prisma } from '../src/db/client.ts'

type Copies = {
  table: string
  /** Any row of it: its columns. */
  row: object
  /** Which rows are copied: SQL behind WHERE, all unless told. */
  where?: string
  /** How many of each row. */
  count: number
  /** What differs: SQL for a column, of the row's columns and of the copy's number `n`, from 1. */
  changes: Record<string, string>
  /** The same of times: how many milliseconds earlier. */
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
  // What it does by itself a minute later.
  if (kind === 'postgresql') await client.$executeRaw(Prisma.raw(`ANALYZE "${table}"`))
}

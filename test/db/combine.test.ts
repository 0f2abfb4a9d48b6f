import { expect, test } from 'vitest'
import type { Statement } from '../../src/db/fast-path/index.ts'
import { combine } from '../../src/db/postgresql/combine.ts'

const into = (table: string) => `INSERT INTO "${table}" ("id") VALUES `
const insert = (table: string, id: string): Statement => ({
  sql: `${into(table)}($1)`,
  args: [id],
  certain: 1,
  part: { table, into: into(table), onConflict: '', sums: 0 },
})
const update = (table: string, id: string): Statement => ({
  sql: `expecting "${table}"`,
  args: ['new', id],
  certain: 1,
  part: { table, returning: `UPDATE "${table}" SET "a" = $1 WHERE "id" = $2 RETURNING 1`, rows: 1 },
})
const lock = (table: string, ...ids: string[]): Statement => ({
  sql: `locking "${table}"`,
  args: ids,
  certain: ids.length,
  part: { table, returning: `SELECT FROM "${table}" WHERE "id" IN ($1, $2) FOR UPDATE`, rows: 2, isLock: true },
})
const INTO_USAGE = 'INSERT INTO "Usage" ("day", "runs", "tokens") VALUES '
const sum = (day: string, runs: number, tokens: number): Statement => ({
  sql: 'adding',
  args: [day, runs, tokens],
  certain: 1,
  part: { table: 'Usage', into: INTO_USAGE, onConflict: ' ON CONFLICT', sums: 2 },
})
const raw: Statement = { sql: 'raw', args: [], certain: 1 }
const combined = (...transactions: Statement[][]) => combine(transactions).map(({ sql, args }) => [sql, args])

test('the statements of a transaction become one, whose query reads all parts in their order', () => {
  expect(combined([lock('A', '1', '2'), update('A', '1'), insert('B', '3'), sum('today', 1, 2)])).toEqual([
    [
      'WITH "part0" AS (SELECT FROM "A" WHERE "id" IN ($1, $2) FOR UPDATE), ' +
        '"part1" AS (UPDATE "A" SET "a" = $3 WHERE "id" = $4 RETURNING 1), ' +
        '"part2" AS (INSERT INTO "B" ("id") VALUES ($5) RETURNING 1), ' +
        `"part3" AS (${INTO_USAGE}($6, $7, $8) ON CONFLICT RETURNING 1) ` +
        'SELECT 1 / (count(*) = 5)::int FROM (SELECT 1 FROM "part0" UNION ALL SELECT 1 FROM "part1" UNION ALL ' +
        'SELECT 1 FROM "part2" UNION ALL SELECT 1 FROM "part3") AS "rows"',
      ['1', '2', 'new', '1', '3', 'today', 1, 2],
    ],
  ])
})

test('a transaction of one statement, or with another kind of statement, is not combined', () => {
  expect(combined([update('A', '1')])).toEqual([['expecting "A"', ['new', '1']]])
  expect(combined([insert('A', '1'), raw, insert('B', '2')]).map(([sql]) => sql)).toEqual([
    `${into('A')}($1)`,
    'raw',
    `${into('B')}($1)`,
  ])
})

test.each([
  ['inserted into', insert('A', '1')],
  ['changed', update('A', '1')],
])('a transaction that updates a table it has %s is not combined', (_, first) => {
  expect(combined([first, update('A', '2')])).toEqual([
    [first.sql, first.args],
    ['expecting "A"', ['new', '2']],
  ])
})

test('transactions that differ only in their values share statements for up to eight', () => {
  const ids = Array.from({ length: 11 }, (_, index) => `${index}`)
  const statements = combined(...ids.map((id) => [insert('A', id)]), [insert('B', 'other')])
  const tuples = (count: number) => Array.from({ length: count }, (_, index) => `($${index + 1})`).join(', ')
  expect(statements).toEqual([
    [into('A') + tuples(8), ids.slice(0, 8)],
    [into('A') + tuples(2), ids.slice(8, 10)],
    [into('A') + tuples(1), ids.slice(10)],
    [into('B') + tuples(1), ['other']],
  ])
  const [[sql, args] = []] = combined(...['1', '2'].map((id) => [update('A', id), insert('B', id)]))
  expect(sql).toContain('$2 RETURNING 1), "part1" AS (UPDATE "A" SET "a" = $3 WHERE "id" = $4 RETURNING 1)')
  expect(sql).toContain('VALUES ($5), ($6) RETURNING 1) SELECT 1 / (count(*) = 4)::int')
  expect(args).toEqual(['new', '1', 'new', '2', '1', '2'])
})

test('sums of several transactions are added up by key, and come last in the order of keys', () => {
  const days = [
    ['b', 1],
    ['a', 2],
    ['b', 4],
  ] as const
  const transactions = days.map(([day, tokens]) => [sum(day, 1, tokens), insert('A', day)])
  expect(combined(...transactions, [raw]).slice(-1)).toEqual([
    [`${INTO_USAGE}($1, $2, $3), ($4, $5, $6) ON CONFLICT`, ['a', 1, 2, 'b', 2, 5]],
  ])
})

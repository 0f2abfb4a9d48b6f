import { expect, test } from 'vitest'
import type { Prepared } from '../../src/db/postgresql/batch.ts'
import { mergeInserts } from '../../src/db/postgresql/merge-inserts.ts'

const into = (table: string) => `INSERT INTO "${table}" ("id") VALUES `
const statement = (sql: string, values: string[]): Prepared => ({ sql, values, name: '', returns: false })
const insert = (table: string, ...ids: string[]): Prepared => ({
  ...statement('', ids),
  insert: { into: into(table), count: ids.length },
})
const update = (id: string) => statement('UPDATE', [id])
const merge = (...transactions: Prepared[][]) =>
  mergeInserts(transactions, ({ sql, args }) => statement(sql, args as string[])).map(({ sql, values }) => [
    sql,
    values,
  ])

test('the inserts of several transactions become statements of one, two, four and eight rows', () => {
  const ids = Array.from({ length: 11 }, (_, index) => `${index}`)
  const parts = [ids.slice(0, 8), ids.slice(8, 10), ids.slice(10)]
  const inserts = (table: string) =>
    parts.map((part) => [into(table) + part.map((_, index) => `($${index + 1})`).join(', '), part])
  expect(merge(...ids.map((id) => [insert('Chat', id), insert('Execution', id), update(id)]))).toEqual([
    ...inserts('Chat'),
    ...inserts('Execution'),
    ...ids.map((id) => ['UPDATE', [id]]),
  ])
})

test('an insert stays behind the earlier inserts of its transaction', () => {
  expect(
    merge(
      [insert('Execution', '1', '2'), update('1')],
      [insert('Chat', '3'), insert('Execution', '3', '4'), update('3')],
    ),
  ).toEqual([
    [`${into('Execution')}($1), ($2)`, ['1', '2']],
    ['UPDATE', ['1']],
    [`${into('Chat')}($1)`, ['3']],
    [`${into('Execution')}($1), ($2)`, ['3', '4']],
    ['UPDATE', ['3']],
  ])
})

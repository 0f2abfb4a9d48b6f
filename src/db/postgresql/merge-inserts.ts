import type { Prepared } from './batch.ts'
import type { Prepare } from './transaction.ts'

/** Maximum number of rows of a merged insert. Its text stays short enough to be prepared (adapter.ts). */
const MAX_ROWS = 8

type Values = Prepared['values']

/** Rows of a table with the same columns, or another statement. */
type Entry = { into: string; rows: Values[] } | { other: Prepared }

/**
 * Merges the inserts of transactions that are executed together: a table's rows with the same columns are inserted by
 * few statements. The inserts of a transaction stay in their order, because later ones refer to earlier ones. An insert
 * may precede an earlier update of its transaction, and those of other transactions. If that fails one of them, all are
 * repeated alone.
 */
export function mergeInserts(transactions: readonly (readonly Prepared[])[], prepare: Prepare): Prepared[] {
  const entries: Entry[] = []
  const latest = new Map<string, number>()
  for (const statements of transactions) {
    let after = -1
    for (const statement of statements) {
      const { insert, values } = statement
      if (!insert) {
        entries.push({ other: statement })
        continue
      }
      let at = latest.get(insert.into) ?? -1
      if (at < after || at < 0) {
        at = entries.push({ into: insert.into, rows: [] }) - 1
        latest.set(insert.into, at)
      }
      after = at
      const entry = entries[at]!
      const width = values.length / insert.count
      if ('rows' in entry)
        for (let from = 0; from < values.length; from += width) entry.rows.push(values.slice(from, from + width))
    }
  }
  return entries.flatMap((entry) => ('other' in entry ? entry.other : [...toInserts(entry, prepare)]))
}

/** Returns inserts of 1, 2, 4 and {@link MAX_ROWS} rows, so that few different statements are prepared. */
function* toInserts({ into, rows }: { into: string; rows: readonly Values[] }, prepare: Prepare): Generator<Prepared> {
  for (let from = 0; from < rows.length; ) {
    const count = Math.min(MAX_ROWS, 2 ** Math.floor(Math.log2(rows.length - from)))
    const some = rows.slice(from, from + count)
    yield prepare({ sql: textOf(into, count, some[0]!.length), args: some.flat() }, false)
    from += count
  }
}

const texts = new Map<string, string>()

/** Returns the text of an insert. */
function textOf(into: string, count: number, width: number): string {
  const key = `${count} ${into}`
  const known = texts.get(key)
  if (known) return known
  const tuple = (row: number) =>
    `(${Array.from({ length: width }, (_, index) => `$${row * width + index + 1}`).join(', ')})`
  const text = into + Array.from({ length: count }, (_, row) => tuple(row)).join(', ')
  texts.set(key, text)
  return text
}

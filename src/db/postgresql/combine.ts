import { failUnlessRows, type InsertPart, type Part, type Statement } from '../fast-path/index.ts'

/**
 * Maximum number of transactions of which a statement is made. Its text stays short enough to be prepared (adapter.ts).
 */
const MAX_TOGETHER = 8

/** A statement that can be a part of another one. */
type Combinable = Statement & { part: Part }

const isInsert = (part: Part): part is InsertPart => 'into' in part

const isSum = ({ part }: Combinable): boolean => isInsert(part) && part.sums > 0

/**
 * Returns the statements of transactions that are executed together. Certain statements of a transaction become one,
 * and transactions that differ only in their values share it. The sums of all of them come last, because they lock rows
 * that many transactions change.
 *
 * The parts of a statement see the database as it was before. So a transaction stays as it is if it changes rows of a
 * table to which it has written before. PostgreSQL checks foreign keys and executes triggers at the statement's end.
 */
export function combine(transactions: readonly (readonly Statement[])[]): Statement[] {
  const statements: Statement[] = []
  const alike = new Map<string, Combinable[][]>()
  const sums: Combinable[] = []
  for (const transaction of transactions) {
    if (!isCombinable(transaction)) {
      statements.push(...transaction)
      continue
    }
    const isAlone = transactions.length === 1
    const parts = isAlone ? transaction : transaction.filter((statement) => !isSum(statement))
    if (!isAlone) sums.push(...transaction.filter(isSum))
    const key = parts.map(({ part }) => numberOf(part)).join()
    const known = alike.get(key)
    if (known) known.push([...parts])
    else alike.set(key, [[...parts]])
  }
  for (const [key, members] of alike) for (const some of inPowersOfTwo(members)) statements.push(...together(key, some))
  return [...statements, ...addUp(sums)]
}

function isCombinable(transaction: readonly Statement[]): transaction is readonly Combinable[] {
  const written = new Set<string>()
  for (const { part } of transaction) {
    if (!part) return false
    if (!isInsert(part) && !part.isLock && written.has(part.table)) return false
    if (isInsert(part) || !part.isLock) written.add(part.table)
  }
  return true
}

const numbers = new Map<string, number>()

/** Returns a number for the text of a part and its number of rows. */
function numberOf(part: Part): number {
  const text = isInsert(part) ? part.into + part.onConflict : `${part.rows} ${part.returning}`
  const number = numbers.get(text) ?? numbers.size
  numbers.set(text, number)
  return number
}

/** Divides a list into lists of 1, 2, 4 and {@link MAX_TOGETHER}, so that few different statements are prepared. */
function* inPowersOfTwo<T>(list: readonly T[]): Generator<readonly T[]> {
  for (let from = 0; from < list.length; ) {
    const count = Math.min(MAX_TOGETHER, 2 ** Math.floor(Math.log2(list.length - from)))
    yield list.slice(from, from + count)
    from += count
  }
}

const texts = new Map<string, string>()

/** Returns a text, and makes it only once. */
function textOf(key: string, make: () => string): string {
  const known = texts.get(key)
  if (known !== undefined) return known
  const text = make()
  texts.set(key, text)
  return text
}

/** Returns the statement of transactions that differ only in their values. */
function together(key: string, members: readonly (readonly Combinable[])[]): Statement[] {
  const [first = []] = members
  if (!first.length) return []
  if (first.length === 1 && members.length === 1) return [first[0]!]
  const args = first.flatMap((_, index) => members.flatMap((member) => member[index]!.args))
  if (first.length === 1 && isInsert(first[0]!.part)) return [{ sql: insertText(first[0]!, members.length), args }]
  return [{ sql: textOf(`${members.length} ${key}`, () => combinedText(first, members.length)), args }]
}

const insertText = ({ part, args }: Combinable, count: number): string =>
  textOf(`${count} of ${numberOf(part)}`, () => insertFrom(part as InsertPart, args.length, count, 0))

/** Returns the text of an insert of several rows, whose parameters follow those before. */
function insertFrom({ into, onConflict }: InsertPart, width: number, count: number, before: number): string {
  const tuple = (row: number) =>
    `(${Array.from({ length: width }, (_, at) => `$${before + row * width + at + 1}`).join(', ')})`
  return into + Array.from({ length: count }, (_, row) => tuple(row)).join(', ') + onConflict
}

/**
 * Returns the text of the parts of several transactions with the same texts. Its query reads the rows of one part after
 * the other, so that PostgreSQL executes them in this order, and fails if there are fewer than expected.
 */
function combinedText(statements: readonly Combinable[], count: number): string {
  const parts: string[] = []
  let before = 0
  let rows = 0
  for (const { part, args } of statements) {
    if (isInsert(part)) parts.push(`${insertFrom(part, args.length, count, before)} RETURNING 1`)
    else for (let at = 0; at < count; at++) parts.push(shifted(part.returning, before + at * args.length))
    before += args.length * count
    rows += count * (isInsert(part) ? 1 : part.rows)
  }
  const named = parts.map((part, at) => `"part${at}" AS (${part})`).join(', ')
  const read = parts.map((_, at) => `SELECT 1 FROM "part${at}"`).join(' UNION ALL ')
  return `WITH ${named} ${failUnlessRows(rows, `(${read}) AS "rows"`)}`
}

/** Returns a text with parameters that follow those before. */
const shifted = (text: string, before: number): string =>
  before ? text.replace(/\$(\d+)/g, (_, number) => `$${Number(number) + before}`) : text

/** Returns the inserts of sums, those of each row together. Rows are locked in the order of their keys. */
function addUp(sums: readonly Combinable[]): Statement[] {
  const statements: Statement[] = []
  for (const alike of Map.groupBy(sums, ({ part }) => numberOf(part)).values()) {
    const { part } = alike[0]!
    const rows = new Map<string, unknown[]>()
    for (const { args } of alike) {
      const { sums } = part as InsertPart
      const key = JSON.stringify(args.slice(0, -sums))
      const known = rows.get(key)
      const add = (value: unknown, index: number) =>
        index < args.length - sums ? value : Number(value) + Number(args[index])
      rows.set(key, known ? known.map(add) : args)
    }
    const sorted = [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, args]) => ({ ...alike[0]!, args }))
    for (const some of inPowersOfTwo(sorted))
      statements.push({ sql: insertText(some[0]!, some.length), args: some.flatMap(({ args }) => args) })
  }
  return statements
}

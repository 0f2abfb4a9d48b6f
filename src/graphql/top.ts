import { getDatamodel } from '../../prisma/generated/pothos.ts'
import { type Db, Prisma } from '../db/client.ts'
import { saysNull } from '../db/fast-path/index.ts'
import { inParts } from '../lib/parts.ts'
import type { Order } from './cursor.ts'

type Sql = Prisma.Sql
type Where = Readonly<Record<string, unknown>>
type Field = { name: string; type: string; kind: string; isList: boolean; relationFromFields?: readonly string[] }

const { models } = getDatamodel().datamodel as unknown as { models: Record<string, { fields: Field[] }> }

/** So many lists are read in one statement: SQLite's limit is 500. */
const AT_ONCE = 250

type Top = {
  /** The model's name, which is its table's. */
  model: string
  /** Which list a row is in. */
  column: string
  keys: readonly string[]
  /** As Prisma has it: columns, AND, OR and to-one relations. */
  where: Where
  order: Order
  take: number
  /** What is told of the rows. */
  columns: readonly string[]
}

/**
 * The first rows of each of many lists, in one statement: each list is read from its index and no further than wanted.
 * Prisma would read them all to their ends, and cut them in memory.
 */
export async function firstOfEach<Row>(db: Db, { keys, ...top }: Top): Promise<Row[]> {
  const found: Row[] = []
  for (const part of inParts(keys, AT_ONCE)) {
    const lists = part.map((key) => Prisma.sql`SELECT * FROM (${listOf(top, key)}) AS l`)
    found.push(...(await db.$queryRaw<Row[]>(Prisma.join(lists, ' UNION ALL '))))
  }
  return found
}

function listOf({ model, column, where, order, take, columns }: Omit<Top, 'keys'>, key: string): Sql {
  const selected = columns.map((name) => Prisma.sql`t.${name_(name)}`)
  const ordered = inIndex(model, where, order).map(
    ([name, direction]) => Prisma.sql`t.${name_(name)} ${Prisma.raw(direction)}`,
  )
  const condition = allOf(model, 't', { AND: [{ [column]: key }, where] })
  return Prisma.sql`SELECT ${Prisma.join(selected)} FROM ${name_(model)} AS t WHERE ${condition}
    ORDER BY ${Prisma.join(ordered)} LIMIT ${Prisma.raw(String(take))}`
}

/** The order of a list of what is not archived, as indexes have it: see `indexOrder`. */
function inIndex(model: string, where: Where, order: Order): Order {
  const [[first, direction] = ['', 'asc'] as const] = order
  return first === 'createdAt' && fieldOf(model, 'archivedAt') && saysNull(where, 'archivedAt')
    ? [['archivedAt', direction], ...order]
    : order
}

const fieldOf = (model: string, name: string): Field | undefined =>
  models[model]?.fields.find((known) => known.name === name)

/** A name of the schema's own. */
const name_ = (name: string): Sql => Prisma.raw(`"${name}"`)

const TRUE = Prisma.sql`1=1`
const both = (conditions: Sql[]): Sql => (conditions.length ? Prisma.join(conditions, ' AND ') : TRUE)

/** A filter of Prisma's as SQL. Throws for what it does not know, so that no filter is passed over. */
function allOf(model: string, alias: string, where: Where): Sql {
  return both(Object.entries(where).map(([name, value]) => conditionOf(model, alias, name, value)))
}

function conditionOf(model: string, alias: string, name: string, value: unknown): Sql {
  const parts = () => [value as Where | Where[]].flat().map((part) => Prisma.sql`(${allOf(model, alias, part)})`)
  if (name === 'AND') return both(parts())
  if (name === 'OR') return Prisma.sql`(${Prisma.join(parts(), ' OR ')})`
  if (name === 'NOT') return Prisma.sql`NOT (${both(parts())})`
  const field = fieldOf(model, name)
  if (!field || field.isList) throw new Error(`No SQL for ${model}.${name}`)
  if (field.kind === 'object') return related(alias, field, value as Where)
  const column = Prisma.sql`${Prisma.raw(alias)}.${name_(name)}`
  // PostgreSQL does not compare its enums with text.
  return comparisonOf(field.kind === 'enum' ? Prisma.sql`CAST(${column} AS TEXT)` : column, value)
}

/** The keys are the target's id, with its organization before it where the reference is in one (see the schema). */
function related(alias: string, { type, relationFromFields: from = [] }: Field, where: Where): Sql {
  const to = { 1: ['id'], 2: ['organizationId', 'id'] }[from.length]
  if (!to) throw new Error(`No SQL for a relation to ${type}`)
  const target = `${alias}_`
  const keys = from.map(
    (own, i) => Prisma.sql`${Prisma.raw(target)}.${name_(to[i]!)} = ${Prisma.raw(alias)}.${name_(own)}`,
  )
  // Looked up row by row: PostgreSQL may otherwise read all of the table first (`rowByRow`).
  const condition = both([...keys, allOf(type, target, where)])
  return Prisma.sql`EXISTS (SELECT 1 FROM ${name_(type)} AS ${Prisma.raw(target)} WHERE ${condition} LIMIT 1 OFFSET 0)`
}

const OPERATORS: Readonly<Record<string, string>> = { equals: '=', not: '<>', lt: '<', lte: '<=', gt: '>', gte: '>=' }

function comparisonOf(column: Sql, value: unknown): Sql {
  if (typeof value !== 'object' || value === null || value instanceof Date) return compare(column, '=', value)
  return both(
    Object.entries(value).map(([name, operand]) => {
      if (name === 'in') return Prisma.sql`${column} IN (${Prisma.join(operand)})`
      const operator = OPERATORS[name]
      if (!operator) throw new Error(`No SQL for ${name}`)
      return compare(column, operator, operand)
    }),
  )
}

function compare(column: Sql, operator: string, value: unknown): Sql {
  if (value === null) return Prisma.sql`${column} IS ${Prisma.raw(operator === '=' ? '' : 'NOT ')}NULL`
  return Prisma.sql`${column} ${Prisma.raw(operator)} ${value}`
}

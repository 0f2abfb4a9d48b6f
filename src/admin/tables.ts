import { createHash } from 'node:crypto'
import { getDatamodel } from '../../prisma/generated/pothos.ts'

/** A table of Prisma's schema, with its columns in order and their Prisma types. */
export type Table = { name: string; columns: readonly Column[] }
type Column = { name: string; type: string }

type Field = { name: string; kind: string; type: string }

/** Reads all tables of the service from the schema. */
export function allTables(): Table[] {
  const { models } = getDatamodel().datamodel as unknown as { models: Record<string, { fields: Field[] }> }
  return Object.entries(models).map(([name, { fields }]) => ({
    name,
    columns: fields.filter(({ kind }) => kind !== 'object').map(({ name, type }) => ({ name, type })),
  }))
}

/** A row in a common form for both databases: text as PostgreSQL reads it, JSON as a value. */
export type Row = (Text | { json: unknown })[]
type Text = string | null

/** Converts a value from SQLite. */
export function fromSqlite(type: string, value: unknown): Row[number] {
  if (value === null) return null
  switch (type) {
    case 'Boolean':
      return value ? 'true' : 'false'
    case 'DateTime':
      return new Date(typeof value === 'string' ? value : Number(value)).toISOString()
    case 'Bytes':
      return `\\x${(value as Buffer).toString('hex')}`
    case 'Json':
      return { json: JSON.parse(String(value)) }
    default:
      return String(value)
  }
}

/** Converts a value from PostgreSQL's text format. */
export function fromPostgres(type: string, value: string | null): Row[number] {
  if (value === null) return null
  if (type === 'DateTime') return new Date(`${value.replace(' ', 'T')}Z`).toISOString()
  if (type === 'Json') return { json: JSON.parse(value) }
  if (type === 'Float') return String(Number(value))
  return value
}

/** Creates an order-independent checksum of rows: the sum of their digests. */
export function createChecksum(): { add: (row: Row) => void; digest: () => string } {
  let sum = 0n
  return {
    add(row) {
      const text = JSON.stringify(
        row.map((value) => (value && typeof value === 'object' ? sorted(value.json) : [value])),
      )
      sum += createHash('sha256').update(text).digest().readBigUInt64BE()
    },
    digest: () => BigInt.asUintN(64, sum).toString(16).padStart(16, '0'),
  }
}

/** Sorts the keys of objects, whose order PostgreSQL does not preserve. */
function sorted(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(sorted)
  if (json === null || typeof json !== 'object') return json
  const entries = Object.entries(json).map(([key, value]) => [key, sorted(value)] as const)
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

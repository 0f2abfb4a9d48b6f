import { DriverAdapterError } from '@prisma/driver-adapter-utils'
import { types } from 'pg'
import * as Prisma from '../../../prisma/generated/sqlite/internal/prismaNamespace.ts'
import type { Answer } from './batch.ts'

/** Returns a parameter in PostgreSQL's text format, or a buffer in its binary format. Times are in UTC. */
export function toParameter(value: unknown): string | Buffer | null {
  switch (typeof value) {
    case 'string':
      return value
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value)
  }
  if (value === null || value === undefined) return null
  if (value instanceof Date) return value.toISOString().replace('T', ' ').slice(0, -1)
  if (Array.isArray(value)) return `{${value.map(toElement)}}`
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength)
  return JSON.stringify(value)
}

/** Returns an element of an array. */
function toElement(value: unknown): string {
  const text = toParameter(value)
  if (text === null) return 'NULL'
  return typeof text === 'string' ? `"${text.replace(/["\\]/g, '\\$&')}"` : `"\\\\x${text.toString('hex')}"`
}

type Parse = (text: string) => unknown

const { builtins } = types
const asIs: Parse = (text) => text
const bytes: Parse = types.getTypeParser(builtins.BYTEA, 'text')
const utc = (text: string): string => `${text.replace(' ', 'T')}+00:00`
const zoned = (text: string): string => text.replace(' ', 'T').replace(/[+-]\d{2}$/, '$&:00')

/** Parsers of values by type, as Prisma's adapter has them: numbers that may be too large stay texts. */
const STORED = new Map<number, Parse>([
  [builtins.BOOL, (text) => text === 't'],
  ...[builtins.INT2, builtins.INT4, builtins.FLOAT4, builtins.FLOAT8].map((type): [number, Parse] => [type, Number]),
  ...[
    ...[builtins.INT8, builtins.OID, builtins.NUMERIC, builtins.TEXT, builtins.VARCHAR, builtins.BPCHAR],
    ...[builtins.JSON, builtins.JSONB, builtins.DATE, builtins.TIME, builtins.UUID, builtins.CHAR],
    // name
    19,
  ].map((type): [number, Parse] => [type, asIs]),
  [builtins.TIMESTAMP, utc],
  [builtins.TIMESTAMPTZ, zoned],
  [builtins.BYTEA, bytes],
])

/** Parsers of values by type, for raw queries: of the type that Prisma returns. */
const TYPED = new Map<number, Parse>([
  ...STORED,
  ...[builtins.INT8, builtins.OID].map((type): [number, Parse] => [type, BigInt]),
  [builtins.NUMERIC, (text) => new Prisma.Decimal(text)],
  [builtins.TIMESTAMP, (text) => new Date(utc(text))],
  [builtins.TIMESTAMPTZ, (text) => new Date(zoned(text))],
  ...[builtins.JSON, builtins.JSONB].map((type): [number, Parse] => [type, JSON.parse]),
  [builtins.BYTEA, (text) => new Uint8Array(bytes(text) as Buffer)],
])

/** Smallest type id of types that are not built in, such as enums. Their values are texts. */
const FIRST_OWN_TYPE = 16_384

/**
 * Returns the rows of an answer as objects: with stored values, or with values of the declared types if `typed`. Throws
 * for a type that Prisma's adapter does not support.
 */
export function toRows({ fields, rows }: Answer, typed: boolean): Record<string, unknown>[] {
  const parsers = typed ? TYPED : STORED
  const columns = fields.map(({ name, dataTypeID: type }) => ({ name, parse: parserOf(parsers, type) }))
  return rows.map((values) => {
    const row: Record<string, unknown> = {}
    for (let index = 0; index < columns.length; index++) {
      const { name, parse } = columns[index]!
      const value = values[index]!
      row[name] = value === null ? null : parse(value)
    }
    return row
  })
}

function parserOf(parsers: ReadonlyMap<number, Parse>, type: number): Parse {
  const parse = parsers.get(type)
  if (parse) return parse
  if (type >= FIRST_OWN_TYPE) return asIs
  // Arrays of the types of pg; unknown types have no parser there.
  if (ARRAYS.has(type)) return types.getTypeParser(type, 'text')
  throw new DriverAdapterError({ kind: 'UnsupportedNativeDataType', type: String(type) })
}

/** Ids of the types boolean[], smallint[], integer[], text[], varchar[], bigint[] and double precision[]. */
const ARRAYS = new Set([1000, 1005, 1007, 1009, 1015, 1016, 1022])

import { readFileSync } from 'node:fs'
import type { Dialect } from './dialect.ts'
import { columnsOf, type Enums, quote, type Relation, type Table } from './tables.ts'

const SCHEMA = new URL('../../../prisma/schema.prisma', import.meta.url)

type Field = {
  name: string
  type: string
  isOptional: boolean
  /** Text after the type. */
  attributes: string
  /** Arguments of `@relation`; empty without one. */
  relation: string
}

type Model = { fields: readonly Field[]; keys: ReadonlyMap<string, readonly string[]> }

/** Attributes that the fast path supports. With any other, its behavior would differ from Prisma's. */
const ATTRIBUTES = new Set(['@id', '@unique', '@default', '@relation', '@@id', '@@unique', '@@index'])

/**
 * Reads the tables and relations of the Prisma schema, by the client's model names. Throws if the schema uses an
 * unsupported feature, such as `@updatedAt`, `@map` or `@default(uuid())`.
 */
export function tablesOf(dialect: Dialect, schema = readFileSync(SCHEMA, 'utf8')): ReadonlyMap<string, Table> {
  const models = readModels(schema)
  const enums = readEnums(schema)
  const tables = new Map([...models].map(([name, model]) => [name, tableOf(name, model, models, enums, dialect)]))
  for (const [name, { fields }] of models) {
    for (const field of fields) {
      const [, own, theirs] = /fields: \[(.+?)\], references: \[(.+?)\]/.exec(field.relation) ?? []
      const [from, to] = [tables.get(name), tables.get(field.type)]
      if (!own || !theirs || !from || !to) continue
      const names = theirs.split(', ')
      const on = own.split(', ').map((column, index) => [column, names[index] ?? ''] as const)
      from.relations.set(field.name, { to, number: field.isOptional ? 'maybe' : 'one', on })
      const back = models.get(field.type)?.fields.find((other) => other !== field && isBack(other, name, field))
      if (back) to.relations.set(back.name, { to: from, number: 'many', on: on.map(([a, b]) => [b, a] as const) })
    }
  }
  return new Map([...tables].map(([name, table]) => [name.charAt(0).toLowerCase() + name.slice(1), table]))
}

/** Creates the table of a model without its relations, which need the other tables. */
function tableOf(
  name: string,
  { fields, keys }: Model,
  models: ReadonlyMap<string, Model>,
  enums: Enums,
  dialect: Dialect,
) {
  const columns = fields.filter(({ type }) => !models.has(type))
  const required = columns.filter(({ isOptional }) => !isOptional)
  return {
    name,
    columns: new Map(
      columns.map(({ name, type, isOptional }) => [name, { name, sql: quote(name), type, isRequired: !isOptional }]),
    ),
    all: columnsOf(columns.map(({ name }) => name)),
    needed: required.filter(({ attributes }) => !attributes.includes('@default')).map(({ name }) => name),
    keys,
    enums,
    relations: new Map<string, Relation>(),
    dialect,
    inserts: [],
  }
}

function readModels(schema: string): ReadonlyMap<string, Model> {
  const models = schema.matchAll(/^model (\w+) \{$(.*?)^\}$/gms)
  return new Map(
    Array.from(models, ([, model = '', body = '']) => {
      const code = body.replaceAll(/\/\/.*$/gm, '')
      requireKnownAttributes(model, code)
      const lines = code.matchAll(/^ +(\w+) +(\w+)(?:\[\])?(\??)(.*)$/gm)
      const fields = Array.from(lines, ([, name = '', type = '', optional = '', attributes = '']): Field => {
        const [, relation = ''] = /@relation\((.*?)\)$/.exec(attributes.trimEnd()) ?? []
        return { name, type, isOptional: optional !== '', attributes, relation }
      })
      return [model, { fields, keys: keysOf(code, fields) }]
    }),
  )
}

function readEnums(schema: string): Enums {
  const enums = schema.matchAll(/^enum (\w+) \{$(.*?)^\}$/gms)
  return new Map(
    Array.from(enums, ([, name = '', body = '']) => {
      const code = body.replaceAll(/\/\/.*$/gm, '')
      requireKnownAttributes(name, code)
      return [name, new Set(code.match(/\w+/g))]
    }),
  )
}

function keysOf(code: string, fields: readonly Field[]): ReadonlyMap<string, readonly string[]> {
  const single = fields.filter(({ attributes }) => /@(id|unique)\b/.test(attributes)).map(({ name }) => [name])
  const several = Array.from(code.matchAll(/@@(?:id|unique)\(\[([\w, ]+)\]/g), ([, names = '']) => names.split(', '))
  return new Map([...single, ...several].map((names) => [names.join('_'), names]))
}

/** Throws if a model or enum has an attribute that the fast path would ignore. */
function requireKnownAttributes(model: string, code: string): void {
  const unquoted = code.replaceAll(/"[^"]*"/g, '""')
  for (const [attribute] of unquoted.matchAll(/@@?[\w.]+/g)) if (!ATTRIBUTES.has(attribute)) refuse(model, attribute)
  for (const [text] of unquoted.matchAll(/@default\(\w+\(/g)) refuse(model, `${text}…))`)
  for (const [text] of unquoted.matchAll(/@@(?:id|unique)\((?!\[[\w, ]+\]\)).*/g)) refuse(model, text)
}

function refuse(model: string, attribute: string): never {
  throw new Error(
    `prisma/schema.prisma: the fast path does not support ${attribute} (in ${model}). Add support for it, or remove it.`,
  )
}

/** Returns whether a field is the other side of a relation, with the same relation name if it has one. */
const isBack = (other: Field, model: string, { relation }: Field): boolean =>
  other.type === model && nameOf(other.relation) === nameOf(relation)

const nameOf = (relation: string) => /^"(\w+)"/.exec(relation)?.[1]

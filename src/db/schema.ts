import { readFileSync } from 'node:fs'
import type { Dialect } from './dialects.ts'
import { type Table, tableOf } from './tables.ts'

const SCHEMA = new URL('../../prisma/schema.prisma', import.meta.url)

type Field = {
  name: string
  type: string
  isOptional: boolean
  /** What `@relation` says, empty where it says nothing. */
  relation: string
}

/** The tables of the Prisma schema with their relations, each by what the client calls its model. */
export function tablesOf(dialect: Dialect): ReadonlyMap<string, Table> {
  const models = readModels(readFileSync(SCHEMA, 'utf8'))
  const tables = new Map(
    [...models].map(([name, fields]) => {
      const columns = fields.filter(({ type }) => !models.has(type)).map(({ name, type }) => [name, type] as const)
      return [name, tableOf(name, new Map(columns), dialect)]
    }),
  )
  for (const [model, fields] of models) {
    for (const field of fields) {
      const [, own, theirs] = /fields: \[(.+?)\], references: \[(.+?)\]/.exec(field.relation) ?? []
      const [from, to] = [tables.get(model), tables.get(field.type)]
      if (!own || !theirs || !from || !to) continue
      const names = theirs.split(', ')
      const on = own.split(', ').map((column, index) => [column, names[index] ?? ''] as const)
      from.relations.set(field.name, { to, number: field.isOptional ? 'maybe' : 'one', on })
      const back = models.get(field.type)?.find((other) => other !== field && isBack(other, model, field))
      if (back) to.relations.set(back.name, { to: from, number: 'many', on: on.map(([a, b]) => [b, a] as const) })
    }
  }
  return new Map([...tables].map(([name, table]) => [name.charAt(0).toLowerCase() + name.slice(1), table]))
}

function readModels(schema: string): ReadonlyMap<string, readonly Field[]> {
  const models = schema.matchAll(/^model (\w+) \{$(.*?)^\}$/gms)
  return new Map(
    Array.from(models, ([, model = '', body = '']) => {
      const fields = body.matchAll(/^ +(\w+) +(\w+)(?:\[\])?(\??)(?:.*@relation\((.*?)\)$)?/gm)
      const read = ([, name = '', type = '', optional = '', relation = '']: RegExpExecArray): Field => ({
        name,
        type,
        isOptional: optional !== '',
        relation,
      })
      return [model, Array.from(fields, read)]
    }),
  )
}

/** Whether a field is the other side of a relation: of the same name, if it has one. */
const isBack = (other: Field, model: string, { relation }: Field): boolean =>
  other.type === model && nameOf(other.relation) === nameOf(relation)

const nameOf = (relation: string) => /^"(\w+)"/.exec(relation)?.[1]

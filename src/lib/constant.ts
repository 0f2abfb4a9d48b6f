import type { z } from 'zod'

// What is asked for again and again and never changes is checked against its output schema once, and written once: both
// cost more than all the rest of a request for it.

type Constant = { schema: z.ZodType; json: string }

const constants = new WeakMap<object, Constant>()

/**
 * What the schema makes of a value, frozen as deep as it goes: it is checked by {@link takingConstants} and written by
 * {@link toJson} no more. A value that the schema refuses is given back as it is, for whoever checks it to complain of.
 */
export function constant<Schema extends z.ZodObject>(schema: Schema, value: z.output<Schema>): z.output<Schema> {
  const { data, success } = schema.safeParse(value)
  if (!success) return value
  const frozen = freeze(data)
  constants.set(frozen, { schema, json: JSON.stringify(frozen) })
  return frozen
}

function freeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === 'object' && part !== null) freeze(part)
  return Object.freeze(value)
}

/** The same schema, which takes its constants as they are, the same objects. To be said last of it: any change is a copy. */
export function takingConstants<Schema extends z.ZodObject>(schema: Schema): Schema {
  const { run } = schema._zod
  schema._zod.run = (payload, context) => (isConstant(payload.value, schema) ? payload : run(payload, context))
  return schema
}

const isConstant = (value: unknown, schema: z.ZodType): boolean => known(value)?.schema === schema

const known = (value: unknown): Constant | undefined =>
  typeof value === 'object' && value !== null ? constants.get(value) : undefined

/** What `JSON.stringify` says of an object, which has constants for its members, or lists of them. */
export function toJson(value: object): string {
  const whole = known(value)
  if (whole) return whole.json
  const members: string[] = []
  for (const [name, member] of Object.entries(value)) {
    const isList = Array.isArray(member) && known(member[0])
    const json = isList ? `[${member.map((each) => jsonOf(each) ?? 'null')}]` : jsonOf(member)
    if (json !== undefined) members.push(`${JSON.stringify(name)}:${json}`)
  }
  return `{${members}}`
}

/** Undefined for what JSON leaves out. */
const jsonOf = (value: unknown): string | undefined => known(value)?.json ?? JSON.stringify(value)

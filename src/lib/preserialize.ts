import type { z } from 'zod'

// Validates and serializes values that are requested often and never change once instead of per request.

type Preserialized = { schema: z.ZodType; json: string }

const preserialized = new WeakMap<object, Preserialized>()

/**
 * Validates a value with its schema and deep-freezes the result. {@link acceptPreserialized} and {@link toJson} then skip
 * validation and serialization. An invalid value is returned unchanged, so that the normal validation reports it.
 */
export function preserialize<Schema extends z.ZodObject>(schema: Schema, value: z.output<Schema>): z.output<Schema> {
  const { data, success } = schema.safeParse(value)
  if (!success) return value
  const frozen = freeze(data)
  preserialized.set(frozen, { schema, json: JSON.stringify(frozen) })
  return frozen
}

function freeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === 'object' && part !== null) freeze(part)
  return Object.freeze(value)
}

/**
 * Returns the schema with support for its constants, which it returns unchanged. Apply it last, because any change
 * copies the schema.
 */
export function acceptPreserialized<Schema extends z.ZodObject>(schema: Schema): Schema {
  const { run } = schema._zod
  schema._zod.run = (payload, context) => (isPreserialized(payload.value, schema) ? payload : run(payload, context))
  return schema
}

const isPreserialized = (value: unknown, schema: z.ZodType): boolean => known(value)?.schema === schema

const known = (value: unknown): Preserialized | undefined =>
  typeof value === 'object' && value !== null ? preserialized.get(value) : undefined

/** Serializes an object like `JSON.stringify`, with constants as members or in lists of them. */
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

/** Undefined for values that JSON omits. */
const jsonOf = (value: unknown): string | undefined => known(value)?.json ?? JSON.stringify(value)

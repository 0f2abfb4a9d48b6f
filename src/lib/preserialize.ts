import { z } from 'zod'
import { isObject } from './unknown.ts'

// Validates and serializes values that are requested often and never change once instead of per request.

type Preserialized = { schema: z.ZodType; json: string }

const preserialized = new WeakMap<object, Preserialized>()

/**
 * Validates a value with its schema and deep-freezes the result. {@link parseOutput} and {@link toJson} then skip
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
 * Validates an output like its schema. Keeps constants of the schema that are its fields, or items of its lists,
 * without validating them again. Throws a ZodError.
 */
export function parseOutput(schema: z.ZodType, output: unknown): unknown {
  if (!(schema instanceof z.ZodObject) || !isObject(output) || !Object.values(output).some(holdsConstants)) {
    return schema.parse(output)
  }
  const parsed: Record<string, unknown> = {}
  for (const [name, field] of Object.entries<z.ZodType>(schema.shape)) {
    const member = output[name]
    const value = isConstant(member, field) || isListOfConstants(member, field) ? member : field.parse(member)
    if (value !== undefined) parsed[name] = value
  }
  return parsed
}

const holdsConstants = (member: unknown): boolean => known(Array.isArray(member) ? member[0] : member) !== undefined

const isConstant = (value: unknown, schema: unknown): boolean => known(value)?.schema === schema

const isListOfConstants = (value: unknown, schema: z.ZodType): boolean =>
  Array.isArray(value) && schema instanceof z.ZodArray && value.every((item) => isConstant(item, schema.element))

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

/** Returns the JSON of a value; undefined if JSON omits it. */
const jsonOf = (value: unknown): string | undefined => known(value)?.json ?? JSON.stringify(value)

import { z } from 'zod'

type Schema = { [key: string]: unknown }

/** Keys of Zod's metadata that mean nothing to clients of the Model Context Protocol. */
const OURS: ReadonlySet<string> = new Set(['$schema', '$defs', 'id', 'param', 'examples'])

/** Keys whose values are schemas by name, and keys whose values are lists of schemas. */
const BY_NAME: ReadonlySet<string> = new Set(['properties', 'patternProperties'])
const LISTS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf', 'prefixItems'])

/**
 * Converts a Zod schema to JSON Schema 2020-12 without references, which some models cannot follow. An output may have
 * more properties than its schema.
 */
export function toJsonSchema(schema: z.ZodType, io: 'input' | 'output'): Schema {
  const converted = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Schema
  return inline(converted, (converted.$defs ?? {}) as Record<string, Schema>)
}

function inline(schema: unknown, defs: Readonly<Record<string, Schema>>): Schema {
  if (typeof schema !== 'object' || schema === null) return schema as never
  const { $ref, ...own } = schema as Schema
  const target = typeof $ref === 'string' ? defs[$ref.slice('#/$defs/'.length)] : undefined
  const cleaned: Schema = {}
  for (const [key, value] of Object.entries({ ...target, ...own })) {
    if (OURS.has(key) || (key === 'additionalProperties' && value === false)) continue
    if (BY_NAME.has(key)) cleaned[key] = mapValues(value as Schema, (each) => inline(each, defs))
    else if (LISTS.has(key)) cleaned[key] = (value as unknown[]).map((each) => inline(each, defs))
    else if (key === 'items' || key === 'additionalProperties') cleaned[key] = inline(value, defs)
    else cleaned[key] = value
  }
  // The format alone describes the text.
  if (cleaned.format !== undefined) delete cleaned.pattern
  return withoutUnion(cleaned)
}

/** Writes a choice between one type and null as a list of types. */
function withoutUnion({ anyOf, ...rest }: Schema): Schema {
  if (!Array.isArray(anyOf)) return rest
  const [one, none, ...others] = anyOf as Schema[]
  const isNullable = one && none?.type === 'null' && !others.length && typeof one.type === 'string' && !one.enum
  return isNullable ? { ...one, ...rest, type: [one.type, 'null'] } : { ...rest, anyOf }
}

const mapValues = (object: Schema, map: (value: unknown) => unknown): Schema =>
  Object.fromEntries(Object.entries(object).map(([name, value]) => [name, map(value)]))

/** Returns a schema of an object that has only some of the properties, and no others. */
export function pick(schema: Schema, names: readonly string[]): Schema {
  const properties = (schema.properties ?? {}) as Schema
  const unknown = names.find((name) => !Object.hasOwn(properties, name))
  if (unknown !== undefined) throw new Error(`The procedure has no input named ${unknown}`)
  const required = ((schema.required ?? []) as string[]).filter((name) => names.includes(name))
  return {
    type: 'object',
    properties: Object.fromEntries(names.map((name) => [name, properties[name]])),
    ...(required.length && { required }),
    additionalProperties: false,
  }
}

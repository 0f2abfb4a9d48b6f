import { z } from 'zod'

type Schema = { [key: string]: unknown }

/** Keys of Zod's metadata that mean nothing to clients of the Model Context Protocol. */
const OURS: ReadonlySet<string> = new Set(['$schema', '$defs', 'id', 'param', 'examples'])

const NOT_BLANK = '\\S'
const SAFE = Number.MAX_SAFE_INTEGER

/** Keys whose values are schemas by name, and keys whose values are lists of schemas. */
const BY_NAME: ReadonlySet<string> = new Set(['properties', 'patternProperties'])
const LISTS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf', 'prefixItems'])

/** Converts the schema of an input to JSON Schema 2020-12 without references, which some models cannot follow. */
export const toInputSchema = (schema: z.ZodType): Schema => convert(schema, 'input')

/**
 * Converts the schema of an output like {@link toInputSchema}. Clients and models read the schemas of all tools, so it
 * has the names and types of the fields down to `depth`, and explains those of the first level alone. An output may
 * have more properties than its schema.
 */
export const toOutputSchema = (schema: z.ZodType, depth: number): Schema => outline(convert(schema, 'output'), depth)

function convert(schema: z.ZodType, io: 'input' | 'output'): Schema {
  const converted = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as Schema
  return inline(converted, (converted.$defs ?? {}) as Record<string, Schema>)
}

/** Keys of an outline, and of one whose fields are too deep for it. */
const OUTLINE: ReadonlySet<string> = new Set(['type', 'enum', 'const', 'required', 'properties', 'items', ...LISTS])
const LEAF: ReadonlySet<string> = new Set(['type', 'enum', 'const', 'items', ...LISTS])

/** Fields that repeat others for the hosted original's client. */
const ALIASES: ReadonlySet<string> = new Set(['character', 'characters'])

function outline(schema: Schema, depth: number, isTop = true): Schema {
  const kept = Object.entries(schema).filter(([key]) => (depth > 0 ? OUTLINE : LEAF).has(key))
  const outlined = Object.fromEntries(
    kept.map(([key, value]) => {
      if (key === 'items') return [key, outline(value as Schema, depth, false)]
      if (LISTS.has(key)) return [key, (value as Schema[]).map((each) => outline(each, depth, false))]
      return [key, key === 'properties' ? outlineFields(value as Record<string, Schema>, depth, isTop) : value]
    }),
  )
  return withoutUnion(outlined)
}

function outlineFields(fields: Readonly<Record<string, Schema>>, depth: number, isTop: boolean): Schema {
  const kept = Object.entries(fields).filter(([name]) => !(isTop && ALIASES.has(name)))
  const outlined = kept.map(([name, field]) => {
    const { description } = field
    const inner = outline(field, depth - 1, false)
    const isDescribed = isTop && description !== undefined && !Object.hasOwn(field, 'const')
    return [name, isDescribed ? { ...inner, description } : inner]
  })
  return Object.fromEntries(outlined)
}

/** Returns a schema without references, and without parts that mean nothing to clients and models. */
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
  removeImplied(cleaned)
  const { type, ...rest } = cleaned
  // AutoGen and CrewAI read no lists of types in inputs.
  return Array.isArray(type) ? { ...rest, anyOf: type.map((each) => ({ type: each })) } : cleaned
}

/** Removes a pattern that the format or the length implies, and the limits of all integers. */
function removeImplied(schema: Schema): void {
  // The format alone describes the text, and a minimum length means nearly the same as not blank.
  if (schema.format !== undefined || schema.pattern === NOT_BLANK) delete schema.pattern
  for (const limit of ['minimum', 'maximum']) if (Math.abs(schema[limit] as number) === SAFE) delete schema[limit]
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

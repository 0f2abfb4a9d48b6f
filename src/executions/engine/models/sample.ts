import { percentDecoded } from '../../../lib/text.ts'
import { asList, asObject, type Fields, isObject } from '../../../lib/unknown.ts'

/** Maximum depth of a sample, which ends recursive schemas. */
const MAX_DEPTH = 12
/** Maximum size of a sample (characters and values), because nested lists multiply their lengths. */
const MAX_SIZE = 256 * 1024

/**
 * Returns a value that fits most JSON Schemas: required properties only, the first alternative, the smallest number.
 * Strings are `text`, as far as their length allows.
 */
export const sampleOf = (schema: unknown, text: string): unknown =>
  sample(asObject(schema), { root: asObject(schema), text, left: MAX_SIZE }, 0)

/** The whole schema, the text of strings, and the size that is left. */
type Context = { root: Fields; text: string; left: number }

function sample(schema: Fields, context: Context, depth: number): unknown {
  const { $ref, enum: values, anyOf, oneOf, allOf } = schema
  if (depth > MAX_DEPTH || --context.left < 0) return null
  const inner = (given: unknown) => sample(asObject(given), context, depth + 1)
  if (typeof $ref === 'string') return inner(find(context.root, $ref))
  for (const known of ['const', 'default'] as const) if (known in schema) return schema[known]
  if (asList(values).length) return asList(values)[0]
  const [alternative] = asList(anyOf ?? oneOf)
  if (alternative !== undefined)
    return inner({ ...schema, anyOf: undefined, oneOf: undefined, ...asObject(alternative) })
  if (asList(allOf).length) return inner(Object.assign({}, schema, { allOf: undefined }, ...asList(allOf)))
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type
  if (type === 'array' || (type === undefined && schema.items !== undefined)) return listOf(schema, inner)
  if (type === 'object' || isObject(schema.properties)) return objectOf(schema, inner)
  if (type === 'boolean') return false
  if (type === 'null') return null
  if (type === 'number' || type === 'integer') return numberOf(schema)
  return textOf(schema, context)
}

type Sample = (schema: unknown) => unknown

/** Returns a list with the samples of its first items, and of as many others as the schema requires. */
function listOf({ items, prefixItems, minItems }: Fields, inner: Sample): unknown[] {
  const first = asList(prefixItems).map((item) => inner(item))
  const missing = Math.max(0, Math.min(100, Number(minItems ?? 0)) - first.length)
  return [...first, ...Array.from({ length: missing }, () => inner(items))]
}

/** Returns an object with the samples of its required properties. */
function objectOf({ properties, required }: Fields, inner: Sample): Fields {
  const names = asList(required).filter((name) => typeof name === 'string')
  return Object.fromEntries(names.map((name) => [name, inner(asObject(properties)[name])]))
}

function textOf({ minLength = 0, maxLength = Number.POSITIVE_INFINITY }: Fields, context: Context): string {
  const text = context.text.slice(0, Number(maxLength)).padEnd(Math.min(10_000, Number(minLength)), '.')
  context.left -= text.length
  return text
}

/** Returns the smallest number that a schema admits, or 0. */
function numberOf({ minimum, exclusiveMinimum, maximum, exclusiveMaximum }: Fields): number {
  if (typeof minimum === 'number') return Math.ceil(minimum)
  if (typeof exclusiveMinimum === 'number') return Math.floor(exclusiveMinimum) + 1
  const upper = typeof maximum === 'number' ? maximum : typeof exclusiveMaximum === 'number' ? exclusiveMaximum - 1 : 0
  return Math.min(0, Math.floor(upper))
}

/** Finds the schema of a local reference. */
const find = (root: Fields, ref: string): unknown =>
  ref
    .replace(/^#\/?/, '')
    .split('/')
    .filter(Boolean)
    .reduce<unknown>((at, name) => asObject(at)[percentDecoded(name).replaceAll('~1', '/').replaceAll('~0', '~')], root)

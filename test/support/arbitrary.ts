import fc, { type Arbitrary } from 'fast-check'
import type { oas31 } from 'zod-openapi'
import { document } from './openapi.ts'

type Schema = oas31.SchemaObject | oas31.ReferenceObject
type Plain = Exclude<oas31.SchemaObject, boolean>

/** Custom values of a property; undefined leaves it to its schema. */
export type Special = (name: string, schema: oas31.SchemaObject) => Arbitrary<unknown> | undefined

/** Long enough to exercise texts, and short enough to allow many. */
const TEXT = 60

/** Follows references. */
const resolve = (schema: Schema): Plain => {
  if (typeof schema !== 'object') return {}
  if (!('$ref' in schema) || !schema.$ref) return schema as Plain
  const name = schema.$ref.split('/').at(-1) ?? ''
  return resolve(document.components?.schemas?.[name] as Schema)
}

/** Generates values that a schema of the OpenAPI document accepts. */
export function arbitraryOf(given: Schema, special: Special = () => undefined): Arbitrary<unknown> {
  const schema = resolve(given)
  const options = schema.anyOf ?? schema.oneOf
  if (options) return fc.oneof(...options.map((option) => arbitraryOf(option as Schema, special)))
  if (schema.const !== undefined) return fc.constant(schema.const)
  if (schema.enum) return fc.constantFrom(...schema.enum)
  const { type } = schema
  if (Array.isArray(type))
    return fc.oneof(...type.map((one) => arbitraryOf({ ...schema, type: one } as Schema, special)))
  switch (type) {
    case 'null':
      return fc.constant(null)
    case 'boolean':
      return fc.boolean()
    case 'integer':
    case 'number':
      return fc.integer({ min: schema.minimum ?? -5, max: schema.maximum ?? 1_000 })
    case 'string':
      return texts(schema)
    case 'array':
      return fc.array(arbitraryOf((schema.items ?? {}) as Schema, special), {
        minLength: schema.minItems ?? 0,
        maxLength: 4,
      })
    case 'object':
      return objects(schema, special)
    default:
      return fc.jsonValue({ maxDepth: 2 })
  }
}

function texts({ format, pattern, minLength = 0, maxLength = TEXT }: Plain): Arbitrary<string> {
  if (format === 'date-time')
    return fc.date({ noInvalidDate: true, min: YEARS[0], max: YEARS[1] }).map((date) => date.toISOString())
  if (format === 'date')
    return fc.date({ noInvalidDate: true, min: YEARS[0], max: YEARS[1] }).map((date) => date.toISOString().slice(0, 10))
  if (pattern && pattern !== '\\S')
    return fc.stringMatching(new RegExp(pattern)).filter((text) => text.length <= maxLength)
  const some = fc.string({ unit: 'grapheme', minLength, maxLength: Math.min(maxLength, TEXT) })
  return pattern ? some.filter((text) => text.trim() !== '') : some
}

const YEARS = [new Date('2000-01-01'), new Date('2100-01-01')] as const

function objects({ properties = {}, required = [], propertyNames, additionalProperties }: Plain, special: Special) {
  if (typeof additionalProperties === 'object') {
    const names = arbitraryOf((propertyNames ?? { type: 'string' }) as Schema) as Arbitrary<string>
    return fc.dictionary(names, arbitraryOf(additionalProperties as Schema, special), { maxKeys: 3 })
  }
  const fields = Object.entries(properties).map(([name, of]) => [
    name,
    special(name, of as oas31.SchemaObject) ?? arbitraryOf(of as Schema, special),
  ])
  return fc.record(Object.fromEntries(fields) as Record<string, Arbitrary<unknown>>, {
    requiredKeys: required as never[],
  })
}

import { isExactNumber, parseExact } from '../../../lib/exact-json.ts'
import { MAX_NESTING } from '../../../lib/json.ts'
import { type Fields, isObject } from '../../../lib/unknown.ts'
import { isNothing } from '../models/call-inputs.ts'
import { type Alternative, alternativesOf } from '../models/schema-alternatives.ts'

// The inputs of tool calls: reads them from JSON, and fits them to the schema of their tool.

/** Parses an input as JSON. Returns the text itself if it is invalid. */
export function readInput(input: string): unknown {
  try {
    return clean(parseExact(input || '{}'))
  } catch {
    return clean(input)
  }
}

/**
 * Removes characters that PostgreSQL cannot store: NUL and unpaired surrogates. Throws if the value is nested too deep.
 */
export function clean(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return value.replaceAll('\0', '').toWellFormed()
  if (typeof value !== 'object' || value === null || isExactNumber(value)) return value
  if (depth === MAX_NESTING) throw new RangeError('Too deep')
  if (Array.isArray(value)) return value.map((item) => clean(item, depth + 1))
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [clean(key), clean(inner, depth + 1)]))
}

/**
 * Fits an input to the schema of its tool where the tool would certainly refuse it, as servers with a schema library
 * do: leaves out null and empty texts of optional properties, and reads lists, objects, numbers and booleans that a
 * model has written as texts. Leaves every value that the schema admits unchanged.
 */
export const fitInput = (input: unknown, schema: object): unknown => fitValue(input, schema, schema as Fields)

function fitValue(given: unknown, schema: unknown, root: Fields): unknown {
  const alternatives = alternativesOf(schema, root)
  const value = typeof given === 'string' ? readText(given, alternatives) : given
  if (Array.isArray(value)) {
    const items = onlyOne(alternatives.map(({ node }) => node.items))
    return items === undefined ? value : value.map((item) => fitValue(item, items, root))
  }
  if (!isObject(value) || isExactNumber(value)) return value
  const required = new Set(alternatives.flatMap(({ node }) => (Array.isArray(node.required) ? node.required : [])))
  const propertyOf = (name: string) =>
    onlyOne(
      alternatives.map(({ node: { properties } }) =>
        isObject(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined,
      ),
    )
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, one]) => {
      const property = propertyOf(name)
      if (property === undefined) return [[name, one]]
      const isLeftOut = !required.has(name) && isNone(one, alternativesOf(property, root))
      return isLeftOut ? [] : [[name, fitValue(one, property, root)]]
    }),
  )
}

/** Returns the only schema of those given; alternatives of several. */
function onlyOne(schemas: readonly unknown[]): unknown {
  const found = schemas.filter((schema) => schema !== undefined)
  return found.length > 1 ? { anyOf: found } : found[0]
}

const admits = (alternatives: readonly Alternative[], type: string) =>
  alternatives.some(({ types }) => !types || types.has(type))

/** Returns whether a value stands for a property that the model leaves unset, and which the schema does not admit. */
const isNone = (value: unknown, alternatives: readonly Alternative[]): boolean =>
  !admits(alternatives, 'null') && (value === null || (typeof value === 'string' && isUnset(value, alternatives)))

/** Returns whether a text stands for a missing value, and is none that the schema admits. */
const isUnset = (text: string, alternatives: readonly Alternative[]): boolean =>
  isNothing(text.trim()) && !alternatives.some((one) => takesText(one, text))

/** Formats to which no word for a missing value belongs. */
const FORMATS: ReadonlySet<unknown> = new Set(['date', 'date-time', 'time', 'duration', 'uuid', 'email', 'uri'])

/** Returns whether an alternative admits a text that stands for a missing value. */
function takesText({ node, types }: Alternative, text: string): boolean {
  if (!types?.has('string')) return !types
  if (Array.isArray(node.enum)) return node.enum.includes(text)
  if (node.const !== undefined) return node.const === text
  return !FORMATS.has(node.format) && !(Number(node.minLength) > text.length)
}

/**
 * Reads a text as a value of a type that the alternatives admit, unless they admit texts. A text for a missing value
 * that they do not admit becomes null.
 */
function readText(text: string, alternatives: readonly Alternative[]): unknown {
  if (admits(alternatives, 'string') && !isUnset(text, alternatives)) return text
  const trimmed = text.trim()
  const value = isNothing(trimmed)
    ? null
    : readInput(/^(?:true|false)$/i.test(trimmed) ? trimmed.toLowerCase() : trimmed)
  return typesOfValue(value).some((type) => admits(alternatives, type)) ? value : text
}

/** Returns the types of JSON Schema that a value has. */
function typesOfValue(value: unknown): string[] {
  if (value === null) return ['null']
  if (Array.isArray(value)) return ['array']
  if (typeof value === 'number') return Number.isInteger(value) ? ['integer', 'number'] : ['number']
  return isExactNumber(value) ? ['integer', 'number'] : [typeof value]
}

import type { JSONSchema7 } from '@ai-sdk/provider'
import { isExactNumber } from '../../../lib/exact-json.ts'
import { cut } from '../../../lib/text.ts'
import { type Fields, isObject } from '../../../lib/unknown.ts'
import {
  type Context,
  flatten,
  join,
  joinProperties,
  type Limits,
  MAX_DEPTH,
  MAX_NODES,
  typesOf,
} from './schema-nodes.ts'

/** Property names that every provider accepts. Anthropic rejects others, Gemini dots and `$`. */
const PROPERTY = /^[A-Za-z0-9_-]{1,64}$/
const MAX_PROPERTY = 64
/** Underscores at both ends. Each run of them is tried once, also in a name of a million underscores. */
const UNDERSCORES = /^_+|(?<!_)_+$/g
/** Maximum length of a description: OpenAI's limit of 1,024 characters minus the ellipsis. */
const MAX_DESCRIPTION = 1023
/** Maximum length of a schema as JSON (characters). */
const MAX_SCHEMA = 64 * 1024
/** Attempts to fit a schema. The next one is made if the result is too large. */
const ATTEMPTS: readonly Limits[] = [
  { unrolled: 2, depth: MAX_DEPTH },
  { unrolled: 1, depth: MAX_DEPTH },
  { unrolled: 0, depth: MAX_DEPTH },
  { unrolled: 0, depth: 6 },
  { unrolled: 0, depth: 3 },
  { unrolled: 0, depth: 1 },
]

/** A location in an input, with the names of its properties for the model and for the tool. */
type Place = {
  /** Maps the tool's property names to the model's; `own` maps them back. */
  modelNames: Map<string, string>
  own: Map<string, string>
  inside: Map<string, Place>
  items: Place | null
  values: Place | null
}

/** A schema that providers accept, with a function that converts its inputs into the tool's own. */
export type FittedSchema = { schema: JSONSchema7; restore: (input: unknown) => unknown }

class TooLarge extends Error {}

const cache = new WeakMap<object, FittedSchema | null>()

/**
 * Converts the input schema of a tool into one that the APIs of OpenAI, Anthropic and Gemini and compatible servers
 * accept: an object without alternatives at the top, arrays with items, no references, plain property names. It admits
 * at least the inputs of the tool's own schema; the tool checks the rest. Returns null if that is impossible. The
 * result is cached with the schema.
 */
export function fitSchema(schema: object): FittedSchema | null {
  const found = cache.get(schema)
  if (found !== undefined) return found
  const fitted = fitOnce(schema as Fields)
  cache.set(schema, fitted)
  return fitted
}

function fitOnce(root: Fields): FittedSchema | null {
  for (const limits of ATTEMPTS) {
    const place = createPlace()
    try {
      const fitted = fitNode(root, place, { root, limits, depth: 0, refs: [], count: { nodes: 0 } }, true)
      if (!typesOf(fitted).includes('object')) return null
      if (JSON.stringify(fitted).length > MAX_SCHEMA) continue
      const restore = isRenamed(place) ? (input: unknown) => restoreAt(input, place) : (input: unknown) => input
      return { schema: fitted as JSONSchema7, restore }
    } catch (error) {
      if (!(error instanceof TooLarge)) throw error
    }
  }
  return null
}

const createPlace = (): Place => ({
  modelNames: new Map(),
  own: new Map(),
  inside: new Map(),
  items: null,
  values: null,
})

/**
 * Reduces a fitted schema to the plainest form, for servers that reject some of its keywords or untyped values: one
 * type for each value (text for any), without alternatives and limits.
 */
export const plainSchema = (fitted: JSONSchema7): JSONSchema7 => plainNode(fitted) as JSONSchema7

function plainNode(given: unknown): Fields {
  const node = isObject(given) ? given : {}
  const type = typesOf(node).find((name) => name !== 'null')
  const branches = !type && Array.isArray(node.anyOf) ? node.anyOf : []
  const branch = branches.find((one) => isObject(one) && typesOf(one).some((name) => name !== 'null'))
  if (branch) return { ...plainNode(branch), ...described(node) }
  const values = (type ?? 'string') === 'string' ? enumOf(node) : null
  const properties = Object.entries(isObject(node.properties) ? node.properties : {})
  return {
    type: type ?? 'string',
    ...described(node),
    ...(values?.every((value) => typeof value === 'string') && { enum: values }),
    ...(type === 'object' && {
      properties: Object.fromEntries(properties.map(([name, one]) => [name, plainNode(one)])),
    }),
    ...(type === 'object' && Array.isArray(node.required) && { required: node.required }),
    ...(type === 'array' && { items: plainNode(node.items) }),
  }
}

/** Converts one node. `isTop`: alternatives are not allowed there. */
function fitNode(given: unknown, place: Place, outer: Context, isTop = false): Fields {
  if (++outer.count.nodes > MAX_NODES) throw new TooLarge()
  if (!isObject(given) || outer.depth > MAX_DEPTH) return {}
  const { node, refs } = flatten(given, outer)
  const context = { ...outer, refs, depth: outer.depth + 1 }
  const branches = [node.anyOf, node.oneOf].flatMap((list) => (Array.isArray(list) ? list : []))
  const stated = typesOf(node)
  const types = isTop ? ['object'] : stated
  if (isTop && stated.length && !stated.includes('object')) return {}
  if (types.includes('object') && context.depth > context.limits.depth) return openObject(node)
  const isOfObjects = isTop || stated.join() === 'object' || (stated.includes('object') && isObject(node.properties))
  if (branches.length && isOfObjects) return fitObject(joinBranches(node, branches, context), place, context, isTop)
  if (branches.length) return fitAlternatives(node, branches, place, context)
  if (types.includes('object')) return fitObject(node, place, context, isTop)
  return fitValue(node, types, place, context)
}

/** Converts a node of lists, texts, numbers or booleans. */
function fitValue(node: Fields, types: readonly string[], place: Place, context: Context): Fields {
  const values = enumOf(node)
  const type = types.length ? types : values?.every((value) => typeof value === 'string') ? ['string'] : []
  // Providers refuse values of other types.
  const fitting = types.length ? values?.filter((value) => types.some((one) => TYPE_OF[one] === typeof value)) : values
  return {
    ...(type.length && { type: type.length === 1 ? type[0] : type }),
    ...described(node),
    ...(fitting?.length && { enum: fitting }),
    ...limitsOf(node),
    ...(type.includes('array') && { items: itemsOf(node, place, context) }),
  }
}

/** Describes an object without its properties. It may also have the other types that the node names, except a list. */
function openObject(node: Fields): Fields {
  const types = typesOf(node).filter((type) => type !== 'array')
  return { type: types.length > 1 ? types : 'object', ...described(node), properties: {} }
}

function fitAlternatives(node: Fields, branches: unknown[], place: Place, context: Context): Fields {
  const fitted = branches.map((branch) => fitNode(branch, place, context))
  const [only] = fitted
  if (fitted.length === 1 && only) return { ...only, ...described(node) }
  // Beside a branch that admits any value, the others say nothing.
  return { ...described(node), ...(!fitted.some(isAny) && { anyOf: fitted }), ...limitsOf({ default: node.default }) }
}

/** Returns whether a fitted schema admits values of each type. */
const isAny = ({ type, anyOf, enum: values }: Fields): boolean =>
  type === undefined && anyOf === undefined && values === undefined

function fitObject(node: Fields, place: Place, context: Context, isTop: boolean): Fields {
  // Some servers write the list of required properties among them.
  const isProperty = (one: unknown) => one !== false && !Array.isArray(one)
  const given = Object.entries(isObject(node.properties) ? node.properties : {}).filter(([, one]) => isProperty(one))
  // Properties that keep their names come first, so that no generated name takes theirs.
  const ordered = given.toSorted(([one], [other]) => Number(PROPERTY.test(other)) - Number(PROPERTY.test(one)))
  for (const [name] of ordered) nameFor(name, place)
  const properties = given.map(([name, schema]): [string, Fields] => {
    const inside = place.inside.get(name) ?? createPlace()
    place.inside.set(name, inside)
    const modelName = nameFor(name, place)
    const fitted = fitNode(schema, inside, context)
    return [modelName, modelName === name ? fitted : { ...fitted, ...renamed(name, fitted.description) }]
  })
  const required = Array.isArray(node.required) ? node.required : []
  const names = given.flatMap(([name]) => (required.includes(name) ? nameFor(name, place) : []))
  const types = isTop ? ['object'] : typesOf(node)
  return {
    type: types.length > 1 ? types : 'object',
    ...described(node),
    properties: Object.fromEntries(properties),
    ...(names.length && { required: names }),
    ...additionalOf(node, place, context),
    ...(types.includes('array') && { items: itemsOf(node, place, context) }),
  }
}

const renamed = (name: string, description: unknown) => ({
  description: cut(`${name}${typeof description === 'string' ? `: ${description}` : ''}`, MAX_DESCRIPTION),
})

/** Returns the schema of properties that are not listed. Providers know no patterns of their names. */
function additionalOf({ additionalProperties, patternProperties }: Fields, place: Place, context: Context): Fields {
  const byPattern = Object.values(isObject(patternProperties) ? patternProperties : {})
  if (typeof additionalProperties === 'boolean' && (additionalProperties || !byPattern.length))
    return { additionalProperties }
  const schemas = [...byPattern, ...(isObject(additionalProperties) ? [additionalProperties] : [])]
  if (!schemas.length || additionalProperties === undefined) return {}
  place.values ??= createPlace()
  return { additionalProperties: fitNode(schemas.length > 1 ? { anyOf: schemas } : schemas[0], place.values, context) }
}

/** Items of any kind, because providers require a type. The first one is for servers that accept no alternatives. */
const ANY_ITEM = {
  anyOf: [{ type: 'string' }, { type: 'number' }, { type: 'boolean' }, { type: 'object', properties: {} }],
}

/** Returns the items schema of an array. A missing one is derived from the examples. */
function itemsOf(node: Fields, place: Place, context: Context): Fields {
  const { items, prefixItems, examples } = node
  const listed = [prefixItems, items].flatMap((list) => (Array.isArray(list) ? list : []))
  place.items ??= createPlace()
  const inside = place.items
  const alternatives = [...listed, ...(isObject(items) ? [items] : [])].map((one) => fitNode(one, inside, context))
  const distinct = [...new Map(alternatives.map((one) => [JSON.stringify(one), one])).values()]
  const [only = {}] = distinct
  if (distinct.length > 1 && !distinct.some(isAny)) return { anyOf: distinct }
  if (distinct.length === 1 && !isAny(only)) return only
  const example = [node.default, ...(Array.isArray(examples) ? examples : [])].find(
    (one): one is unknown[] => Array.isArray(one) && one.length > 0,
  )
  const kind = typeof example?.[0]
  return ['string', 'number', 'boolean'].includes(kind) ? { type: kind } : { ...described(only), ...ANY_ITEM }
}

/** Returns the property name for the model: its own if providers accept it, otherwise a unique one derived from it. */
function nameFor(name: string, { modelNames, own }: Place): string {
  const found = modelNames.get(name)
  if (found !== undefined) return found
  const plain = PROPERTY.test(name)
    ? name
    : name.replace(/[^A-Za-z0-9_-]+/g, '_').replace(UNDERSCORES, '') || 'property'
  let unique = plain.slice(0, MAX_PROPERTY)
  for (let count = 2; own.has(unique); count++) unique = `${plain.slice(0, MAX_PROPERTY - 5)}_${count}`
  modelNames.set(name, unique)
  own.set(unique, name)
  return unique
}

const isRenamed = (place: Place | null): boolean =>
  place !== null &&
  ([...place.modelNames].some(([name, modelName]) => name !== modelName) ||
    [...place.inside.values(), place.items, place.values].some(isRenamed))

function restoreAt(input: unknown, place: Place | null): unknown {
  if (!place || typeof input !== 'object' || input === null || isExactNumber(input)) return input
  if (Array.isArray(input)) return input.map((item) => restoreAt(item, place.items))
  return Object.fromEntries(
    Object.entries(input).map(([modelName, value]) => {
      const name = place.own.get(modelName) ?? modelName
      return [name, restoreAt(value, place.inside.get(name) ?? place.values)]
    }),
  )
}

/** Merges an object with alternatives: it may have the properties of any, and must have those that all require. */
function joinBranches(node: Fields, branches: readonly unknown[], context: Context): Fields {
  const { anyOf, oneOf, ...rest } = node
  context.count.nodes += branches.length
  if (context.count.nodes > MAX_NODES) throw new TooLarge()
  if (context.depth > MAX_DEPTH) return rest
  const objects = branches.filter(isObject).map((branch) => {
    const { node: flat, refs } = flatten(branch, context)
    const inner = [flat.anyOf, flat.oneOf].flatMap((list) => (Array.isArray(list) ? list : []))
    return inner.length ? joinBranches(flat, inner, { ...context, refs, depth: context.depth + 1 }) : flat
  })
  const properties = joinProperties(objects.map((branch) => branch.properties).filter(isObject), 'anyOf')
  const lists = objects.map(({ required }) => new Set<unknown>(Array.isArray(required) ? required : []))
  const common = lists.length ? lists.reduce((one, other) => one.intersection(other)) : new Set()
  return join({ ...rest, type: 'object' }, { properties, required: [...common] })
}

/** Types of JSON Schema whose values can be listed, and those of JavaScript. */
const TYPE_OF: Readonly<Record<string, string>> = {
  string: 'string',
  number: 'number',
  integer: 'number',
  boolean: 'boolean',
}

/** Returns the values that a node admits: strings, numbers and booleans, none of them empty (Gemini rejects those). */
function enumOf(node: Fields): unknown[] | null {
  const given = Array.isArray(node.enum) ? node.enum : node.const === undefined ? [] : [node.const]
  const isPlain = (value: unknown) => ['string', 'number', 'boolean'].includes(typeof value)
  const values = [...new Set(given)].filter((value) => isPlain(value) && value !== '')
  return values.length && given.every((value) => isPlain(value) || value === null) ? values : null
}

const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0
const isNumber = (value: unknown) => typeof value === 'number' && Number.isFinite(value)

/** Keywords that are kept if their value is valid in JSON Schema 2020-12. */
const LIMITS: Record<string, (value: unknown) => boolean> = {
  minimum: isNumber,
  maximum: isNumber,
  exclusiveMinimum: isNumber,
  exclusiveMaximum: isNumber,
  multipleOf: (value) => isNumber(value) && Number(value) > 0,
  minLength: isCount,
  maxLength: isCount,
  minItems: isCount,
  maxItems: isCount,
  // Gemini accepts no other text format. Grammars of local servers accept only anchored patterns without lookaheads.
  format: (value) => value === 'date-time',
  pattern: (value) => typeof value === 'string' && /^\^.*\$$/s.test(value) && !value.includes('(?') && isPattern(value),
  default: (value) => value !== undefined && value !== null,
}

const limitsOf = (node: Fields): Fields =>
  Object.fromEntries(Object.entries(LIMITS).flatMap(([name, isFit]) => (isFit(node[name]) ? [[name, node[name]]] : [])))

function isPattern(value: string): boolean {
  try {
    new RegExp(value, 'u')
    return true
  } catch {
    return false
  }
}

/** Returns the description of a node, with a format that cannot be sent as such. */
function described({ description, title, format }: Fields): Fields {
  const text = typeof description === 'string' ? description : typeof title === 'string' ? title : ''
  const isOtherFormat = typeof format === 'string' && format !== 'date-time' && /^[\w-]{1,30}$/.test(format)
  const whole = [text, ...(isOtherFormat && !text.includes(format) ? [`(format: ${format})`] : [])]
    .filter(Boolean)
    .join(' ')
  return whole ? { description: cut(whole, MAX_DESCRIPTION) } : {}
}

/** Cuts a tool description to the length that providers accept. */
export const fitDescription = (description: string): string => cut(description, MAX_DESCRIPTION)

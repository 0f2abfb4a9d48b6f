import { percentDecoded } from '../../../lib/text.ts'
import { asObject, type Fields, isObject } from '../../../lib/unknown.ts'

// The nodes of a tool's schema: their references, what they have in common, and their types.

/** Maximum depth of a schema, and maximum number of its nodes after references are resolved. */
export const MAX_DEPTH = 24
export const MAX_NODES = 3_000

/**
 * Limits of what is read: `unrolled` is the number of times that a recursive node is repeated, `depth` that down to which
 * objects list their properties.
 */
export type Limits = { unrolled: number; depth: number }
/** The place of a node. `refs`: the references that led to it. `count`: the nodes read so far, of the whole schema. */
export type Context = { root: Fields; limits: Limits; depth: number; refs: readonly string[]; count: { nodes: number } }

/** Resolves the references of a node and merges its `allOf`. */
export function flatten(
  given: Fields,
  { root, limits, refs: outer }: Context,
): { node: Fields; refs: readonly string[] } {
  let node = given
  let refs = outer
  for (let steps = 0; steps < MAX_DEPTH; steps++) {
    const { $ref: ref, allOf, ...rest } = node
    if (typeof ref === 'string') {
      const isTooDeep = refs.filter((one) => one === ref).length > limits.unrolled
      const target = asObject(targetOf(root, ref))
      refs = [...refs, ref]
      // A node that is repeated too often keeps only its type.
      node = join(rest, isTooDeep ? { type: target.type } : target)
      if (allOf !== undefined) node = { ...node, allOf: Array.isArray(node.allOf) ? [node.allOf, allOf].flat() : allOf }
      continue
    }
    if (!Array.isArray(allOf)) return { node, refs }
    node = allOf.filter(isObject).reduce<Fields>(join, rest)
  }
  return { node: {}, refs }
}

function targetOf(root: Fields, ref: string): unknown {
  if (!ref.startsWith('#')) return undefined
  const path = ref.slice(1).split('/').filter(Boolean)
  return path.reduce<unknown>((at, part) => {
    const name = percentDecoded(part).replaceAll('~1', '/').replaceAll('~0', '~')
    return (isObject(at) || Array.isArray(at)) && Object.hasOwn(at, name) ? (at as Fields)[name] : undefined
  }, root)
}

/** Intersects two schemas: properties and required names of both, for other keywords those of the first. */
export function join(one: Fields, other: Fields): Fields {
  const properties = [one.properties, other.properties].filter(isObject)
  const required = [one.required, other.required].flatMap((list) => (Array.isArray(list) ? list : []))
  return {
    ...other,
    ...one,
    ...(properties.length && { properties: joinProperties(properties, 'allOf') }),
    ...(required.length && { required }),
  }
}

export function joinProperties(all: readonly Fields[], how: 'allOf' | 'anyOf'): Fields {
  const joined = new Map<string, unknown>()
  for (const [name, schema] of all.flatMap((properties) => Object.entries(properties))) {
    const before = joined.get(name)
    const isSame = before === undefined || JSON.stringify(before) === JSON.stringify(schema)
    joined.set(name, isSame ? schema : { [how]: [before, schema] })
  }
  return Object.fromEntries(joined)
}

/** Names of types, as servers of several languages write them, and those of JSON Schema. */
export const TYPES: Record<string, string> = {
  object: 'object',
  array: 'array',
  string: 'string',
  number: 'number',
  integer: 'integer',
  boolean: 'boolean',
  null: 'null',
  int: 'integer',
  int32: 'integer',
  int64: 'integer',
  long: 'integer',
  float: 'number',
  double: 'number',
  decimal: 'number',
  str: 'string',
  text: 'string',
  bool: 'boolean',
  list: 'array',
  dict: 'object',
}

/** Returns the JSON Schema types of a node, inferred from its keywords if none is stated. */
export function typesOf({ type, properties, items, prefixItems }: Fields): string[] {
  const named = (Array.isArray(type) ? type : [type]).flatMap((name) =>
    typeof name === 'string' ? (TYPES[name.toLowerCase()] ?? []) : [],
  )
  if (named.length) return [...new Set(named)]
  if (isObject(properties)) return ['object']
  return items !== undefined || Array.isArray(prefixItems) ? ['array'] : []
}

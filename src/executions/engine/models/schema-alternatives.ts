import { type Fields, isObject } from '../../../lib/unknown.ts'
import { type Context, flatten, MAX_DEPTH, MAX_NODES, TYPES, typesOf } from './schema-nodes.ts'

/** A form that a value may have. `types`: the types of JSON Schema that it admits; null for any. */
export type Alternative = { node: Fields; types: ReadonlySet<string> | null }

/** Returns the forms that a node of a schema admits: its alternatives, and itself for the properties and items it states. */
export function alternativesOf(schema: unknown, root: Fields): Alternative[] {
  const limits = { unrolled: 0, depth: MAX_DEPTH }
  return alternativesIn(schema, { root, limits, depth: 0, refs: [], count: { nodes: 0 } })
}

function alternativesIn(given: unknown, context: Context): Alternative[] {
  if (!isObject(given) || ++context.count.nodes > MAX_NODES) return [{ node: {}, types: null }]
  const { node, refs } = flatten(given, context)
  const types = admittedTypes(node)
  const branches = [node.anyOf, node.oneOf].flatMap((list) => (Array.isArray(list) ? list : []))
  const inner = branches.flatMap((branch) => alternativesIn(branch, { ...context, refs }))
  // Some servers state a type beside alternatives, as fastapi-mcp does, which excludes the null among them.
  const fitting = inner.map((one) => ({ ...one, types: commonTypes(one.types, types) })).filter(isPossible)
  if (!types || !fitting.length) return fitting.length ? fitting : [{ node, types }]
  const own = ['object', 'array', ...(node.nullable === true ? ['null'] : [])].filter((type) => types.has(type))
  return [...(own.length ? [{ node, types: new Set(own) }] : []), ...fitting]
}

const isPossible = ({ types }: Alternative): boolean => types?.size !== 0

/** Returns the types that two schemas admit together; null for any. */
function commonTypes(one: ReadonlySet<string> | null, other: ReadonlySet<string> | null): ReadonlySet<string> | null {
  if (!one || !other) return one ?? other
  const includes = (types: ReadonlySet<string>, type: string) =>
    types.has(type) || (type === 'integer' && types.has('number'))
  const pairs = [[one, other] as const, [other, one] as const]
  return new Set(pairs.flatMap(([some, others]) => [...some].filter((type) => includes(others, type))))
}

/** Returns the types that a node itself admits; null for any. */
function admittedTypes(node: Fields): ReadonlySet<string> | null {
  const stated = [node.type ?? []].flat()
  if (stated.some((name) => typeof name !== 'string' || !TYPES[name.toLowerCase()])) return null
  const values = Array.isArray(node.enum) ? node.enum : node.const === undefined ? [] : [node.const]
  const named = typesOf(node)
  const types = named.length ? named : values.map((value) => typeof value)
  const isNullable = node.nullable === true || values.includes(null)
  return types.length ? new Set([...types, ...(isNullable ? ['null'] : [])]) : null
}

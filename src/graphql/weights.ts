import {
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  type FragmentSpreadNode,
  type GraphQLField,
  type GraphQLSchema,
  getNamedType,
  getNullableType,
  type InlineFragmentNode,
  isInterfaceType,
  isIntrospectionType,
  isListType,
  isObjectType,
  Kind,
  type SelectionNode,
} from 'graphql'
import { MAX_ROWS } from '../lib/page.ts'
import { argumentsOf, type Values } from './arguments.ts'
import { extensionsOf } from './builder.ts'
import { LIMITS, refuse } from './limits.ts'

// The weight of a document: the numbers that its limits bound, and the list that costs most.

/** Assumed rows of a list without a limit. Allows one introspection of the whole schema, but not two. */
const ROWS = 15

/** Weight of selections: `fields` of their own level, everything else including all levels below. */
type Weight = {
  fields: number
  depth: number
  aliases: number
  directives: number
  cost: number
  /** The longest list: `first` for lists whose parent may be a single row, `inLists` for lists within lists. */
  page: Page
}

type Page = { name: string; first: number; inLists: number }

/** A list by its path, with its cost and a page size that passes, such as `first: 10`. */
export type CostliestList = { path: string; cost: number; page?: string }

const NO_PAGE: Page = { name: '', first: 0, inLists: 0 }
const NOTHING: Weight = { fields: 0, depth: 0, aliases: 0, directives: 0, cost: 0, page: NO_PAGE }

const longer = (one: Page, other: Page): Page =>
  one.inLists > other.inLists || (one.inLists === other.inLists && one.first >= other.first) ? one : other

/** Fields of every connection, which are omitted from a list's path. */
const WRAPPERS: ReadonlySet<string> = new Set(['nodes', 'edges', 'node'])

type Type = string | undefined

type Weigher = ReturnType<typeof createWeigher>

/**
 * Creates functions that weigh selections of a type. Each fragment and field is weighed once, so that the time is
 * linear in the size of the document.
 */
export function createWeigher(schema: GraphQLSchema, document: DocumentNode, variables: Values) {
  const fragments = new Map<string, FragmentDefinitionNode>()
  for (const node of document.definitions) {
    if (node.kind === Kind.FRAGMENT_DEFINITION && !fragments.has(node.name.value)) fragments.set(node.name.value, node)
  }
  const weighed = new Map<SelectionNode | FragmentDefinitionNode, Weight>()

  function once<Node extends SelectionNode | FragmentDefinitionNode>(node: Node, weightOf: () => Weight): Weight {
    const known = weighed.get(node)
    if (known) return known
    // A fragment that contains itself weighs nothing; validation rejects it.
    weighed.set(node, NOTHING)
    const weight = weightOf()
    weighed.set(node, weight)
    return weight
  }

  function ofAll(selections: readonly SelectionNode[], type: Type): Weight {
    return selections.reduce((sum, node) => {
      const weight = ofOne(node, type)
      return {
        fields: sum.fields + weight.fields,
        depth: Math.max(sum.depth, weight.depth),
        aliases: sum.aliases + weight.aliases,
        directives: sum.directives + weight.directives + (node.directives?.length ?? 0),
        cost: sum.cost + weight.cost,
        page: longer(sum.page, weight.page),
      }
    }, NOTHING)
  }

  function ofOne(node: SelectionNode, type: Type): Weight {
    if (node.kind === Kind.FIELD) return once(node, () => ofField(node, fieldOf(schema, type, node.name.value)))
    const [of, selections, condition] = spread(node, type)
    return of ? once(of, () => ofAll(selections, condition)) : NOTHING
  }

  /** Returns the selections of a fragment and their type. */
  function spread(node: InlineFragmentNode | FragmentSpreadNode, type: Type) {
    const of = node.kind === Kind.INLINE_FRAGMENT ? node : fragments.get(node.name.value)
    return [of, of?.selectionSet.selections ?? [], of?.typeCondition?.name.value ?? type] as const
  }

  function ofField(node: FieldNode, field: GraphQLField<unknown, unknown> | undefined): Weight {
    const { cost = 1 } = field ? extensionsOf(field) : {}
    const target = field && getNamedType(field.type)
    const below = node.selectionSet ? ofAll(node.selectionSet.selections, target?.name) : NOTHING
    if (below.fields > LIMITS.fields) refuse(`selects too many fields of ${node.name.value}`, `${LIMITS.fields}`)
    const rows = field ? rowsOf(node, field, variables) : 1
    const page = rows > 1 ? { ...below.page, inLists: Math.max(below.page.first, below.page.inLists) } : below.page
    return {
      fields: 1,
      // GraphQL has its own rule for the depth of introspection.
      depth: target && isIntrospectionType(target) ? 1 : below.depth + 1,
      aliases: below.aliases + (node.alias ? 1 : 0),
      directives: below.directives,
      cost: cost + rows * below.cost,
      page: field && isPaged(field) ? longer(page, { name: node.name.value, first: rows, inLists: 0 }) : page,
    }
  }

  return { schema, variables, ofAll, ofOne, spread }
}

/**
 * Finds the list to shorten: the first one on the most expensive path that lets the query pass with one row or more.
 * Searches the root fields, the most expensive first. If no list is enough, names the most expensive root field.
 * `whole`: the cost of the query.
 */
export function findCostliestList(
  weigher: Weigher,
  root: readonly SelectionNode[],
  rootType: Type,
  whole: number,
): CostliestList {
  const { schema, variables, ofAll, ofOne } = weigher

  function down(
    selections: readonly SelectionNode[],
    type: Type,
    times: number,
    path: string[],
  ): CostliestList | undefined {
    for (const [node, of] of fieldsIn(weigher, selections, type).slice(0, path.length ? 1 : LIMITS.rootFields)) {
      const field = fieldOf(schema, of, node.name.value)
      if (!field || !node.selectionSet) continue
      const name = node.name.value
      const way = WRAPPERS.has(name) ? path : [...path, name]
      const target = getNamedType(field.type).name
      const rows = rowsOf(node, field, variables)
      const each = times * ofAll(node.selectionSet.selections, target).cost
      const fits = Math.floor((LIMITS.cost - whole + rows * each) / each)
      if (isPaged(field) && fits >= 1) {
        const argument = typeof argumentsOf(node, variables).last === 'number' ? 'last' : 'first'
        return { path: way.join('.'), cost: times * ofOne(node, of).cost, page: `${argument}: ${fits}` }
      }
      const found = down(node.selectionSet.selections, target, times * rows, way)
      if (found) return found
    }
    return undefined
  }

  const [first] = fieldsIn(weigher, root, rootType)
  const [node, of] = first!
  return down(root, rootType, 1, []) ?? { path: node.name.value, cost: ofOne(node, of).cost }
}

/** Returns the fields of selections and their fragments, most expensive first. */
function fieldsIn({ ofOne, spread }: Weigher, selections: readonly SelectionNode[], type: Type) {
  const found = new Map<FieldNode, Type>()
  const seen = new Set<SelectionNode | FragmentDefinitionNode>()
  function collect(nodes: readonly SelectionNode[], type: Type): void {
    for (const node of nodes) {
      if (node.kind === Kind.FIELD) {
        found.set(node, type)
        continue
      }
      const [of, inner, condition] = spread(node, type)
      if (!of || seen.has(of)) continue
      seen.add(of)
      collect(inner, condition)
    }
  }
  collect(selections, type)
  return [...found].sort(([a, ofA], [b, ofB]) => ofOne(b, ofB).cost - ofOne(a, ofA).cost)
}

function fieldOf(schema: GraphQLSchema, typeName: string | undefined, name: string) {
  const type = typeName === undefined ? undefined : schema.getType(typeName)
  return type && (isObjectType(type) || isInterfaceType(type)) ? schema.getField(type, name) : undefined
}

const isPaged = ({ args }: GraphQLField<unknown, unknown>): boolean => args.some(({ name }) => name === 'first')

function rowsOf(node: FieldNode, field: GraphQLField<unknown, unknown>, variables: Values): number {
  const { rows } = extensionsOf(field)
  if (rows === undefined) return isListType(getNullableType(field.type)) ? ROWS : 1
  const { first, last } = argumentsOf(node, variables)
  const given = typeof first === 'number' ? first : last
  return typeof given === 'number' ? Math.min(Math.max(given, 1), MAX_ROWS) : rows
}

import {
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  type FragmentSpreadNode,
  GraphQLError,
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
  Lexer,
  parse,
  type SelectionNode,
  Source,
  TokenKind,
  validate,
} from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { tooLong } from '../errors.ts'
import { MAX_ROWS, sizeOf } from '../lib/page.ts'
import { argumentsOf, type Values, variablesOf } from './arguments.ts'
import { extensionsOf } from './builder.ts'

/**
 * Limits of a document (contract-2.md section 1.9). The cost is the number of values in the response if every list has
 * its maximum length; long texts and looked-up values count more. Validation stops after `errors` errors. The size of
 * the `answer` (bytes, counting six per character) is checked while it is built; the longest text of a model fits.
 * `page` is the maximum number of rows of a nested list unless its parent is a single row.
 */
export const LIMITS = {
  length: 100_000,
  tokens: 2_000,
  variables: 50,
  depth: 15,
  rootFields: 20,
  fields: 200,
  aliases: 30,
  directives: 30,
  cost: 250_000,
  page: 100,
  errors: 10,
  answer: 120_000_000,
}

export const TOO_MUCH = 'LIMIT_EXCEEDED'

const LESS = 'Ask for fewer rows with `first`, for fewer fields, or with several documents.'

/** Size of the data read for a response so far (upper bound, bytes). */
export type Answer = { size: number }

/** Adds data to a response. Throws if the response becomes too long. */
export function addTo(answer: Answer, read: unknown): void {
  answer.size += sizeOf(read)
  if (answer.size > LIMITS.answer) throw answerTooLong()
}

/** Returns the error for an answer that would be too long. */
export const answerTooLong = () => new GraphQLError(tooLong().message, { extensions: { code: TOO_MUCH, detail: LESS } })

/** Assumed rows of a list without a limit. Allows one introspection of the whole schema, but not two. */
const ROWS = 15

/** Rejects queries, mutations and subscriptions over the limits before validation. */
export function useLimits(): Plugin {
  return {
    onParse({ params, setParseFn }) {
      const text = params.source.toString()
      if (text.length > LIMITS.length) refuse('is too long', `${LIMITS.length} characters`)
      skim(text)
      setParseFn((source, options) => withStack(() => parse(source, options)))
    },
    // Thrown instead of set as the result, which would be cached for the document regardless of its variables.
    onValidate({ params: { schema, documentAST }, context, setValidationFn }) {
      const { variables } = (context as { params?: { variables?: Values | null } }).params ?? {}
      withStack(() => checkLimits(schema, documentAST, variables ?? {}))
      setValidationFn((schema, document, rules) => validate(schema, document, rules, { maxErrors: LIMITS.errors }))
    },
  }
}

/** Maximum nesting of brackets: more than a document needs and less than the parser's stack allows. */
const BRACKETS = 200

/**
 * Rejects documents that would be expensive to parse: too many tokens, or brackets nested so deeply that the stack
 * overflows.
 */
function skim(text: string): void {
  // Brackets in strings are counted too; the exact check follows only if necessary.
  const brackets = text.match(/[[{(]/g)?.length ?? 0
  if (brackets <= BRACKETS && text.length <= LIMITS.tokens) return
  const lexer = new Lexer(new Source(text))
  let depth = 0
  for (let count = 0; depth <= BRACKETS; count++) {
    if (count > LIMITS.tokens) refuse('has too many tokens', `${LIMITS.tokens}`)
    const kind = kindOfNext(lexer)
    if (kind === null || kind === TokenKind.EOF) return
    if (kind === TokenKind.BRACKET_L || kind === TokenKind.BRACE_L || kind === TokenKind.PAREN_L) depth++
    if (kind === TokenKind.BRACKET_R || kind === TokenKind.BRACE_R || kind === TokenKind.PAREN_R) depth--
  }
  refuse('is nested too deeply', `${LIMITS.depth} levels`)
}

/** Returns the next token's kind, or null for an invalid token, which the parser reports. */
function kindOfNext(lexer: Lexer): TokenKind | null {
  try {
    return lexer.advance().kind
  } catch {
    return null
  }
}

/** Reports a stack overflow as nesting that is too deep. */
function withStack<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof RangeError ? tooMuch('is nested too deeply', `${LIMITS.depth} levels`) : error
  }
}

/** Throws a GraphQLError for a document beyond {@link LIMITS}. The document need not be valid otherwise. */
export function checkLimits(schema: GraphQLSchema, document: DocumentNode, variables: Values): void {
  for (const node of document.definitions) {
    if (node.kind !== Kind.OPERATION_DEFINITION) continue
    const { length: given = 0 } = node.variableDefinitions ?? []
    if (given > LIMITS.variables) refuse('has too many variables', `${LIMITS.variables}`)
    const { selections } = node.selectionSet
    const weigher = createWeigher(schema, document, variablesOf(node, variables))
    const type = schema.getRootType(node.operation)?.name
    const { fields, depth, aliases, directives, cost, page } = weigher.ofAll(selections, type)
    if (fields > LIMITS.rootFields) refuse('has too many fields at its root', `${LIMITS.rootFields}`)
    if (depth > LIMITS.depth) refuse('is nested too deeply', `${LIMITS.depth} levels`)
    if (aliases > LIMITS.aliases) refuse('has too many aliases', `${LIMITS.aliases}`)
    if (directives > LIMITS.directives) refuse('has too many directives', `${LIMITS.directives}`)
    if (page.inLists > LIMITS.page) {
      refuse(
        `asks for ${page.inLists} rows of each ${page.name}`,
        `${LIMITS.page} in a list; use ${page.name}(first: ${LIMITS.page})`,
      )
    }
    if (cost > LIMITS.cost) throw tooDear(cost, findDearest(weigher, selections, type, cost))
  }
}

/** Returns an error that names the list to shorten, its cost, and the largest `first` that passes. */
function tooDear(total: number, { path, cost, page }: Dearest): GraphQLError {
  const what = `asks for too much at once: ${path} would cost ${cost}${cost < total ? ` of ${total} in all` : ''}`
  return tooMuch(what, `${LIMITS.cost}; use ${page ? `${path}(${page}) or ` : ''}fewer fields`)
}

const tooMuch = (what: string, atMost: string) =>
  new GraphQLError(`The document ${what}. At most ${atMost}`, { extensions: { code: TOO_MUCH, detail: LESS } })

function refuse(what: string, atMost: string): never {
  throw tooMuch(what, atMost)
}

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
type Dearest = { path: string; cost: number; page?: string }

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
function createWeigher(schema: GraphQLSchema, document: DocumentNode, variables: Values) {
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
function findDearest(weigher: Weigher, root: readonly SelectionNode[], rootType: Type, whole: number): Dearest {
  const { schema, variables, ofAll, ofOne } = weigher

  function down(selections: readonly SelectionNode[], type: Type, times: number, path: string[]): Dearest | undefined {
    for (const [node, of] of fieldsIn(weigher, selections, type).slice(0, path.length ? 1 : LIMITS.rootFields)) {
      const field = fieldOf(schema, of, node.name.value)
      if (!field || !node.selectionSet) continue
      const name = node.name.value
      const way = WRAPPERS.has(name) ? path : [...path, name]
      const target = getNamedType(field.type).name
      const rows = rowsOf(node, field, variables)
      const each = times * ofAll(node.selectionSet.selections, target).cost
      if (isPaged(field)) {
        const fits = Math.floor((LIMITS.cost - whole + rows * each) / each)
        const argument = typeof argumentsOf(node, variables).last === 'number' ? 'last' : 'first'
        if (fits >= 1) return { path: way.join('.'), cost: times * ofOne(node, of).cost, page: `${argument}: ${fits}` }
      }
      const found = down(node.selectionSet.selections, target, times * rows, way)
      if (found) return found
    }
    return undefined
  }
  const [first] = fieldsIn(weigher, root, rootType)
  const [node, of] = first!
  const whatever = { path: node.name.value, cost: ofOne(node, of).cost }
  return down(root, rootType, 1, []) ?? whatever
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

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
  type OperationDefinitionNode,
  parse,
  type SelectionNode,
  Source,
  TokenKind,
  validate,
} from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { tooLong } from '../errors.ts'
import { MAX_ROWS, sizeOf } from '../lib/page.ts'
import { extensionsOf } from './builder.ts'
import { argumentsOf, type Values, variablesOf } from './values.ts'

/**
 * Limits of a document (contract-2.md section 1.9). The cost is the number of values in the answer if every list is as
 * long as its page allows; long texts and values that take a lookup count more. Validation stops after `errors` errors.
 * The size of the `answer` (bytes, if every character took six) is checked while it is made: the longest text of a model
 * has room in it. `page` is the maximum number of rows of a nested list unless its parent is a single row.
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

/** What an answer is made of, as far as it has been read (bytes, at most). */
export type Answer = { size: number }

/** Adds what was read for an answer. Throws where it would be too long. */
export function addTo(answer: Answer, read: unknown): void {
  answer.size += sizeOf(read)
  if (answer.size > LIMITS.answer) throw answerTooLong()
}

export const answerTooLong = () => new GraphQLError(tooLong().message, { extensions: { code: TOO_MUCH } })

/** The rows of a list that does not say how many. So the introspection of the whole schema fits, and not twice. */
const ROWS = 15

/** Refuses what asks for too much before it is validated: queries, mutations and subscriptions. */
export function useLimits(): Plugin {
  return {
    onParse({ params, setParseFn }) {
      const text = params.source.toString()
      if (text.length > LIMITS.length) refuse('is too long', `${LIMITS.length} characters`)
      skim(text)
      setParseFn((source, options) => withStack(() => parse(source, options)))
    },
    // Thrown, not set as the result: that would be kept for the document, with other variables too.
    onValidate({ params: { schema, documentAST }, context, setValidationFn }) {
      const { variables } = (context as { params?: { variables?: Values | null } }).params ?? {}
      withStack(() => checkLimits(schema, documentAST, variables ?? {}))
      setValidationFn((schema, document, rules) => validate(schema, document, rules, { maxErrors: LIMITS.errors }))
    },
  }
}

/** More than any document needs, and less than the parser's calls can be nested. */
const BRACKETS = 200

/**
 * Refuses what would take long to parse, and all of it in vain: too many tokens, or brackets nested so deeply that it
 * ended at the end of the stack.
 */
function skim(text: string): void {
  // Those in texts are counted too, until it matters.
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

/** Null for what is no token: that is for the parser to say. */
function kindOfNext(lexer: Lexer): TokenKind | null {
  try {
    return lexer.advance().kind
  } catch {
    return null
  }
}

/** What is nested too deeply for the stack is nested too deeply. */
function withStack<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof RangeError ? tooMuch('is nested too deeply', `${LIMITS.depth} levels`) : error
  }
}

/** Throws a GraphQLError for a document beyond {@link LIMITS}, which need not be valid otherwise. */
export function checkLimits(schema: GraphQLSchema, document: DocumentNode, variables: Values): void {
  for (const node of document.definitions) {
    if (node.kind !== Kind.OPERATION_DEFINITION) continue
    const { length: given = 0 } = node.variableDefinitions ?? []
    if (given > LIMITS.variables) refuse('has too many variables', `${LIMITS.variables}`)
    const { weight, dearest } = weigh(schema, document, node, variablesOf(node, variables))
    const { fields, depth, aliases, directives, cost, page } = weight
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
    if (cost > LIMITS.cost) throw tooDear(cost, dearest())
  }
}

/** Names the list to shorten, its cost, and the largest `first` with which the document passes. */
function tooDear(total: number, { path, cost, page }: Dearest): GraphQLError {
  const what = `asks for too much at once: ${path} would cost ${cost}${cost < total ? ` of ${total} in all` : ''}`
  return tooMuch(what, `${LIMITS.cost}; use ${page ? `${path}(${page}) or ` : ''}fewer fields`)
}

const tooMuch = (what: string, atMost: string) =>
  new GraphQLError(`The document ${what}. At most ${atMost}`, { extensions: { code: TOO_MUCH } })

function refuse(what: string, atMost: string): never {
  throw tooMuch(what, atMost)
}

/** What selections amount to: `fields` of their own level, the rest with all that is below. */
type Weight = {
  fields: number
  depth: number
  aliases: number
  directives: number
  cost: number
  /** The longest list: `first` of those whose parent may be one row, and `inLists` of those that are in a list. */
  page: Page
}

type Page = { name: string; first: number; inLists: number }

/** A list, by the names on the way to it, with its cost in the answer, and the page that would do, such as `first: 10`. */
type Dearest = { path: string; cost: number; page?: string }

const NO_PAGE: Page = { name: '', first: 0, inLists: 0 }
const NOTHING: Weight = { fields: 0, depth: 0, aliases: 0, directives: 0, cost: 0, page: NO_PAGE }

const longer = (one: Page, other: Page): Page =>
  one.inLists > other.inLists || (one.inLists === other.inLists && one.first >= other.first) ? one : other

/** Names that every connection has: they say nothing about where a list is. */
const WRAPPERS: ReadonlySet<string> = new Set(['nodes', 'edges', 'node'])

/** Weighs each fragment and field once, so that the work grows with the document, whatever it amounts to. */
function weigh(
  schema: GraphQLSchema,
  document: DocumentNode,
  operation: OperationDefinitionNode,
  variables: Values,
): { weight: Weight; dearest: () => Dearest } {
  const fragments = new Map<string, FragmentDefinitionNode>()
  for (const node of document.definitions) {
    if (node.kind === Kind.FRAGMENT_DEFINITION && !fragments.has(node.name.value)) fragments.set(node.name.value, node)
  }
  const weighed = new Map<SelectionNode | FragmentDefinitionNode, Weight>()
  const root = schema.getRootType(operation.operation)?.name

  function once<Node extends SelectionNode | FragmentDefinitionNode>(node: Node, weightOf: () => Weight): Weight {
    const known = weighed.get(node)
    if (known) return known
    // A fragment in itself weighs nothing: validation refuses it.
    weighed.set(node, NOTHING)
    const weight = weightOf()
    weighed.set(node, weight)
    return weight
  }

  function ofAll(selections: readonly SelectionNode[], type: string | undefined): Weight {
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

  function ofOne(node: SelectionNode, type: string | undefined): Weight {
    if (node.kind === Kind.FIELD) return once(node, () => ofField(node, fieldOf(schema, type, node.name.value)))
    const [of, selections, condition] = spread(node, type)
    return of ? once(of, () => ofAll(selections, condition)) : NOTHING
  }

  /** The selections of a fragment, and the type that they are of. */
  function spread(node: InlineFragmentNode | FragmentSpreadNode, type: string | undefined) {
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
      // How deep the schema may be asked of itself is a rule of GraphQL's own.
      depth: target && isIntrospectionType(target) ? 1 : below.depth + 1,
      aliases: below.aliases + (node.alias ? 1 : 0),
      directives: below.directives,
      cost: cost + rows * below.cost,
      page: field && isPaged(field) ? longer(page, { name: node.name.value, first: rows, inLists: 0 }) : page,
    }
  }

  /**
   * Finds the list to shorten: along the dearest way down from the dearest root field, the first that is short enough
   * with one row or more; else the same from the next root field. Without one, names the dearest root field.
   */
  function dearest(): Dearest {
    const { cost: whole } = ofAll(operation.selectionSet.selections, root)

    function down(
      selections: readonly SelectionNode[],
      type: string | undefined,
      times: number,
      path: string[],
    ): Dearest | undefined {
      for (const [node, of] of fieldsIn(selections, type).slice(0, path.length ? 1 : LIMITS.rootFields)) {
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
          if (fits >= 1)
            return { path: way.join('.'), cost: times * ofOne(node, of).cost, page: `${argument}: ${fits}` }
        }
        const found = down(node.selectionSet.selections, target, times * rows, way)
        if (found) return found
      }
      return undefined
    }
    const [first] = fieldsIn(operation.selectionSet.selections, root)
    const [node, of] = first!
    const whatever = { path: node.name.value, cost: ofOne(node, of).cost }
    return down(operation.selectionSet.selections, root, 1, []) ?? whatever
  }

  /** The fields of selections and of the fragments in them, the dearest first. */
  function fieldsIn(selections: readonly SelectionNode[], type: string | undefined) {
    const found = new Map<FieldNode, string | undefined>()
    const seen = new Set<SelectionNode | FragmentDefinitionNode>()
    function collect(nodes: readonly SelectionNode[], type: string | undefined): void {
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

  return { weight: ofAll(operation.selectionSet.selections, root), dearest }
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

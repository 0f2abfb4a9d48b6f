import {
  type DocumentNode,
  type FieldNode,
  GraphQLError,
  type GraphQLField,
  type GraphQLSchema,
  getNamedType,
  getNullableType,
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
import { sizeOf } from '../lib/page.ts'
import { extensionsOf } from './builder.ts'
import { argumentsOf, type Values, variablesOf } from './values.ts'

/**
 * What a document may be and ask for. The cost is the number of values in the answer, if lists are as long as their
 * `first` allows; long texts count more. After `errors` errors validation gives up. How long an `answer` may be (bytes, if
 * every character took six) is known when it is made: the longest text that a model can have said has room in it.
 */
export const LIMITS = {
  length: 100_000,
  tokens: 2_000,
  variables: 50,
  depth: 12,
  rootFields: 20,
  aliases: 30,
  directives: 30,
  cost: 75_000,
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
const ROWS = 10
const MAX_ROWS = 10_000

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
    const { fields, depth, aliases, directives, cost } = weigh(schema, document, node, variablesOf(node, variables))
    if (fields > LIMITS.rootFields) refuse('has too many fields at its root', `${LIMITS.rootFields}`)
    if (depth > LIMITS.depth) refuse('is nested too deeply', `${LIMITS.depth} levels`)
    if (aliases > LIMITS.aliases) refuse('has too many aliases', `${LIMITS.aliases}`)
    if (directives > LIMITS.directives) refuse('has too many directives', `${LIMITS.directives}`)
    if (cost > LIMITS.cost) refuse(`asks for too much at once (${cost})`, `${LIMITS.cost}; give a smaller first`)
  }
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
}

const NOTHING: Weight = { fields: 0, depth: 0, aliases: 0, directives: 0, cost: 0 }

/** Each fragment is weighed once, so that the work grows with the document, whatever it amounts to. */
function weigh(
  schema: GraphQLSchema,
  document: DocumentNode,
  operation: OperationDefinitionNode,
  variables: Values,
): Weight {
  const weighed = new Map<string, Weight>()

  function ofFragment(name: string): Weight {
    const known = weighed.get(name)
    if (known) return known
    // In a circle it weighs nothing: validation refuses it.
    weighed.set(name, NOTHING)
    const fragment = document.definitions.find(
      (node) => node.kind === Kind.FRAGMENT_DEFINITION && node.name.value === name,
    )
    const weight =
      fragment?.kind === Kind.FRAGMENT_DEFINITION
        ? ofAll(fragment.selectionSet.selections, fragment.typeCondition.name.value)
        : NOTHING
    weighed.set(name, weight)
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
      }
    }, NOTHING)
  }

  function ofOne(node: SelectionNode, type: string | undefined): Weight {
    if (node.kind === Kind.FRAGMENT_SPREAD) return ofFragment(node.name.value)
    if (node.kind === Kind.INLINE_FRAGMENT)
      return ofAll(node.selectionSet.selections, node.typeCondition?.name.value ?? type)
    return ofField(node, fieldOf(schema, type, node.name.value))
  }

  function ofField(node: FieldNode, field: GraphQLField<unknown, unknown> | undefined): Weight {
    const { cost = 1 } = field ? extensionsOf(field) : {}
    const target = field && getNamedType(field.type)
    const below = node.selectionSet ? ofAll(node.selectionSet.selections, target?.name) : NOTHING
    const rows = field ? rowsOf(node, field, variables) : 1
    return {
      fields: 1,
      // How deep the schema may be asked of itself is a rule of GraphQL's own.
      depth: target && isIntrospectionType(target) ? 1 : below.depth + 1,
      aliases: below.aliases + (node.alias ? 1 : 0),
      directives: below.directives,
      cost: cost + rows * below.cost,
    }
  }

  return ofAll(operation.selectionSet.selections, schema.getRootType(operation.operation)?.name)
}

function fieldOf(schema: GraphQLSchema, typeName: string | undefined, name: string) {
  const type = typeName === undefined ? undefined : schema.getType(typeName)
  return type && (isObjectType(type) || isInterfaceType(type)) ? schema.getField(type, name) : undefined
}

function rowsOf(node: FieldNode, field: GraphQLField<unknown, unknown>, variables: Values): number {
  const { rows } = extensionsOf(field)
  if (rows === undefined) return isListType(getNullableType(field.type)) ? ROWS : 1
  const { first } = argumentsOf(node, variables)
  return typeof first === 'number' ? Math.min(Math.max(first, 1), MAX_ROWS) : rows
}

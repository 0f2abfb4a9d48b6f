import {
  type DocumentNode,
  type GraphQLError,
  type GraphQLSchema,
  Kind,
  Lexer,
  parse,
  Source,
  TokenKind,
  validate,
} from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { type Values, variablesOf } from './arguments.ts'
import { LIMITS, refuse, tooMuch } from './limits.ts'
import { type CostliestList, createWeigher, findCostliestList } from './weights.ts'

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
    if (cost > LIMITS.cost) throw overCost(cost, findCostliestList(weigher, selections, type, cost))
  }
}

/** Returns an error that names the list to shorten, its cost, and the largest `first` that passes. */
function overCost(total: number, { path, cost, page }: CostliestList): GraphQLError {
  const what = `asks for too much at once: ${path} would cost ${cost}${cost < total ? ` of ${total} in all` : ''}`
  return tooMuch(what, `${LIMITS.cost}; use ${page ? `${path}(${page}) or ` : ''}fewer fields`)
}

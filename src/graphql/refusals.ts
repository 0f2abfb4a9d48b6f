import { GraphQLError, type GraphQLSchema, getOperationAST, Kind, parse } from 'graphql'
import { toAppError } from '../errors.ts'
import { extensionsOf } from './builder.ts'
import { LIMITS } from './limits.ts'
import type { GraphQLRequest } from './requests.ts'
import { argumentsOf, variablesOf } from './values.ts'

/**
 * Why a procedure would refuse the input, where GraphQL's types refused it first: a missing field or a wrong value is
 * told in the contract's words on every face. Null when the procedure has nothing against it, or the document is not
 * one.
 */
export function explain(
  schema: GraphQLSchema,
  { query = '', operationName, variables }: NonNullable<GraphQLRequest['params']>,
): GraphQLError | null {
  const operation = getOperationAST(tryParse(query), operationName)
  const fields = operation && schema.getRootType(operation.operation)?.getFields()
  for (const node of operation?.selectionSet.selections ?? []) {
    const field = node.kind === Kind.FIELD && fields?.[node.name.value]
    const input = field && extensionsOf(field).input
    if (!input) continue
    const given = argumentsOf(node, variablesOf(operation!, variables ?? {}))
    const { error } = input.safeParse('input' in given ? given.input : given)
    if (error) return new GraphQLError(toAppError(error).message, { nodes: [node] })
  }
  return null
}

function tryParse(query: string) {
  try {
    return parse(query, { maxTokens: LIMITS.tokens })
  } catch {
    return { kind: Kind.DOCUMENT, definitions: [] } as const
  }
}

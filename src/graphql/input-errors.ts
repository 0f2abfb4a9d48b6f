import { GraphQLError, type GraphQLSchema, getOperationAST, Kind, parse } from 'graphql'
import { toAppError } from '../errors.ts'
import { argumentsOf, variablesOf } from './arguments.ts'
import { extensionsOf } from './builder.ts'
import { LIMITS } from './limits.ts'
import type { GraphQLRequest } from './requests.ts'

/**
 * Returns the procedure's error for input that GraphQL's types rejected first, so that a missing field or wrong value
 * has the contract's message in every API. Returns null if the procedure accepts the input or the document is invalid.
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
    if (error) {
      const { message, code, detail } = toAppError(error, 'input' in given ? given.input : given)
      return new GraphQLError(message, { nodes: [node], extensions: { code, detail } })
    }
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

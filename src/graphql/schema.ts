import {
  type GraphQLSchema,
  type GraphQLType,
  getNamedType,
  getNullableType,
  isInputObjectType,
  isInterfaceType,
  isObjectType,
} from 'graphql'
import '../agents/graphql.ts'
import '../agents/graphql-actions.ts'
import '../approvals/graphql.ts'
import '../audit/graphql.ts'
import '../chats/graphql.ts'
import '../chats/graphql-events.ts'
import '../events/graphql.ts'
import '../executions/graphql.ts'
import '../executions/graphql-actions.ts'
import '../executions/graphql-events.ts'
import '../executions/graphql-log.ts'
import '../files/graphql.ts'
import '../keys/graphql.ts'
import '../limits/graphql.ts'
import '../mcps/graphql.ts'
import '../media/graphql.ts'
import '../missions/graphql.ts'
import '../models/graphql.ts'
import '../organizations/graphql.ts'
import '../organizations/graphql-invitations.ts'
import '../organizations/graphql-members.ts'
import '../organizations/graphql-policy.ts'
import '../organizations/graphql-services.ts'
import '../profile/graphql.ts'
import '../providers/graphql.ts'
import '../secrets/graphql.ts'
import '../sessions/graphql.ts'
import '../skills/graphql.ts'
import '../spaces/graphql.ts'
import '../tasks/graphql.ts'
import '../usage/graphql.ts'
import '../webhooks/graphql.ts'
import { builder, extensionsOf } from './builder.ts'
import { guard } from './scopes.ts'

/**
 * Adds missing descriptions: of fields from the OpenAPI document, of arguments and input fields from their input types.
 */
function describe(schema: GraphQLSchema): GraphQLSchema {
  for (const type of Object.values(schema.getTypeMap())) {
    if (!isObjectType(type) && !isInputObjectType(type) && !isInterfaceType(type)) continue
    const like = extensionsOf(type).like?.shape
    for (const field of Object.values(type.getFields())) {
      field.description ??= like?.[field.name]?.description ?? ofInput(field)
      if ('args' in field) for (const arg of field.args) arg.description ??= ofInput(arg)
    }
  }
  return schema
}

/** Returns the description of the input type of an argument or field, if it has one. */
function ofInput({ type }: { type: GraphQLType }): string | null | undefined {
  const named = getNamedType(type)
  return isInputObjectType(named) ? named.description : null
}

/**
 * Makes the results of mutations nullable. A document can have several mutations, which are executed one after another.
 * If one that is never null failed, the others would lose their results, and those after it would not be executed.
 */
function separateMutations(schema: GraphQLSchema): GraphQLSchema {
  for (const field of Object.values(schema.getMutationType()?.getFields() ?? {}))
    field.type = getNullableType(field.type)
  return schema
}

/** The whole GraphQL schema, to which each resource adds its part when it is imported. */
export const schema: GraphQLSchema = guard(describe(separateMutations(builder.toSchema())))

import {
  defaultFieldResolver,
  type GraphQLField,
  type GraphQLObjectType,
  type GraphQLSchema,
  getNamedType,
  isAbstractType,
  isIntrospectionType,
  isObjectType,
} from 'graphql'
import { requireScope } from '../auth/actor.ts'
import { type Extensions, extensionsOf, type GraphQLContext } from './builder.ts'

/**
 * Adds scope checks to the resolvers. A field that returns rows of a type needs the scopes of that type, wherever it
 * occurs, unless it declares its own. Procedures check what mutations and subscriptions do; the rows they return are
 * checked like any others. Throws if a type or field declares no scopes.
 */
export function guard(schema: GraphQLSchema): GraphQLSchema {
  for (const type of Object.values(schema.getTypeMap())) {
    if (!isObjectType(type) || isIntrospectionType(type)) continue
    if ('pothosPrismaModel' in type.extensions && type.extensions.pothosPrismaModel && !extensionsOf(type).scopes) {
      throw new Error(`The type ${type.name} returns rows but declares no scopes`)
    }
    for (const field of Object.values(type.getFields())) guardField(schema, type, field)
  }
  return schema
}

function guardField(
  schema: GraphQLSchema,
  type: GraphQLObjectType,
  field: GraphQLField<unknown, GraphQLContext>,
): void {
  if (type === schema.getMutationType()) return
  if (type === schema.getSubscriptionType()) {
    guardSubscription(field)
    return
  }
  const target = getNamedType(field.type)
  const scopes = extensionsOf(field).scopes ?? (isObjectType(target) ? scopesOf(target) : undefined)
  if (!scopes && (type === schema.getQueryType() || (isAbstractType(target) && hasRows(schema, target)))) {
    throw new Error(`The field ${type.name}.${field.name} declares no scopes`)
  }
  if (!scopes?.length) return
  const resolve = field.resolve ?? defaultFieldResolver
  field.resolve = (parent, args, context, info) => {
    requireScope(context.actor, ...scopes)
    return resolve(parent, args, context, info)
  }
}

/** Puts a scope check before a subscription. One without a procedure declares its scopes itself. */
function guardSubscription(field: GraphQLField<unknown, GraphQLContext>): void {
  const { procedure, scopes } = extensionsOf(field)
  if (procedure) return
  const { subscribe } = field
  if (!scopes?.length || !subscribe) throw new Error(`The subscription ${field.name} declares no scopes`)
  field.subscribe = (parent, args, context, info) => {
    requireScope(context.actor, ...scopes)
    return subscribe(parent, args, context, info)
  }
}

/** Returns the scopes of a type's rows, also for a list of them, because their number is information too. */
function scopesOf(type: GraphQLObjectType): Extensions['scopes'] {
  const rows = type.getFields().nodes
  return extensionsOf(type).scopes ?? (rows && extensionsOf(getNamedType(rows.type)).scopes)
}

const hasRows = (schema: GraphQLSchema, type: Parameters<GraphQLSchema['getPossibleTypes']>[0]): boolean =>
  schema.getPossibleTypes(type).some((possible) => extensionsOf(possible).scopes)

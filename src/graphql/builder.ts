import SchemaBuilder from '@pothos/core'
import PrismaPlugin from '@pothos/plugin-prisma'
import type { AnyProcedure } from '@trpc/server'
import { GraphQLError } from 'graphql'
import type { z } from 'zod'
import type PrismaTypes from '../../prisma/generated/pothos.ts'
import { getDatamodel } from '../../prisma/generated/pothos.ts'
import type { PrismaClient } from '../../prisma/generated/sqlite/client.ts'
import type { Actor } from '../auth/actor.ts'
import type { Scope } from '../auth/scopes.ts'
import type { Caller } from '../router.ts'
import type { Context } from '../trpc.ts'
import type { Answer } from './limits.ts'

/** Context of a resolver: the request, the actor, the procedures called as that actor, and the size of the response. */
export type GraphQLContext = Context & { readonly actor: Actor; readonly caller: Caller; readonly answer: Answer }

/** Metadata of types and fields in GraphQL `extensions`. */
export type Extensions = {
  /**
   * A token needs one of these scopes for the rows of a type, or for a field. A field's scopes override those of its
   * type.
   */
  scopes?: readonly Scope[]
  /** For a root field: its procedure. */
  procedure?: AnyProcedure
  /** Input schema of the procedure, whose messages are used for invalid values. */
  input?: z.ZodType
  /** For an object type: the schema with the descriptions of its fields. */
  like?: z.ZodObject
  /** Cost of a field if it is more than 1, as for long texts (see limits.ts). */
  cost?: number
  /** Default number of rows of a list without `first`. */
  rows?: number
}

/** Returns the metadata of a type or field. */
export const extensionsOf = (of: { readonly extensions: object }): Extensions => of.extensions

type BuilderTypes = {
  Context: GraphQLContext
  PrismaTypes: PrismaTypes
  DefaultFieldNullability: false
  Scalars: {
    ID: { Input: string; Output: string }
    DateTime: { Input: string; Output: Date | string }
    Date: { Input: string; Output: string }
    JSON: { Input: unknown; Output: unknown }
  }
}

/** Types for helpers over the builder. */
export type Types = PothosSchemaTypes.ExtendDefaultTypes<BuilderTypes>

export const builder = new SchemaBuilder<BuilderTypes>({
  plugins: [PrismaPlugin],
  defaultFieldNullability: false,
  prisma: {
    // Pothos uses only the models of the client.
    client: (context) => context.deps.db as PrismaClient,
    dmmf: getDatamodel(),
    // A resolver that ignores the selection would reload it row by row.
    onUnusedQuery: process.env.NODE_ENV === 'production' ? null : 'error',
  },
})

builder.queryType({ description: 'Queries. They need the same scopes as the REST paths' })
builder.mutationType({ description: 'Mutations, executed by the same procedures as REST' })
builder.subscriptionType({ description: 'Subscriptions, as server-sent events' })

builder.scalarType('DateTime', {
  description: 'ISO 8601 in UTC, with milliseconds',
  serialize: (value) => new Date(value).toISOString(),
  // Passes the text on, because the procedure's schema validates it with its own messages.
  parseValue(value) {
    if (typeof value === 'string') return value
    throw new GraphQLError('A DateTime is a string in ISO 8601')
  },
})

builder.scalarType('Date', {
  description: 'A day, YYYY-MM-DD',
  serialize: String,
  parseValue(value) {
    if (typeof value === 'string') return value
    throw new GraphQLError('A Date is a string, YYYY-MM-DD')
  },
})

builder.scalarType('JSON', {
  description: 'Any JSON value without a schema, such as tool inputs and provider options',
  serialize: (value) => value,
  parseValue: (value) => value,
})

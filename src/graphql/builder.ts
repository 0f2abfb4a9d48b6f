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

/** What a resolver gets: the request, who asks, the procedures as that caller, and what the answer is made of. */
export type GraphQLContext = Context & { readonly actor: Actor; readonly caller: Caller; readonly answer: Answer }

/** What types and fields say of themselves beside their GraphQL type, under `extensions`. */
export type Extensions = {
  /** A token needs any of them: for the rows of a type, or for a field, whose word beats its type's. */
  scopes?: readonly Scope[]
  /** A root field: the procedure that it shows. */
  procedure?: AnyProcedure
  /** The procedure's input, in whose words bad values are refused. */
  input?: z.ZodType
  /** An object type: the schema whose descriptions its fields take over. */
  like?: z.ZodObject
  /** What a field costs where it is more than 1: long texts (see limits.ts). */
  cost?: number
  /** How many rows a list has when nobody says `first`. */
  rows?: number
}

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

/** For those who write helpers over the builder. */
export type Types = PothosSchemaTypes.ExtendDefaultTypes<BuilderTypes>

export const builder = new SchemaBuilder<BuilderTypes>({
  plugins: [PrismaPlugin],
  defaultFieldNullability: false,
  prisma: {
    // Of the client it asks for models alone.
    client: (context) => context.deps.db as PrismaClient,
    dmmf: getDatamodel(),
    // A resolver that forgets what was selected would load it again, row by row.
    onUnusedQuery: process.env.NODE_ENV === 'production' ? null : 'error',
  },
})

builder.queryType({ description: 'Reading. Needs the same scopes as the REST paths.' })
builder.mutationType({ description: 'Writing, through the same procedures as REST.' })
builder.subscriptionType({ description: 'Following, as server-sent events.' })

builder.scalarType('DateTime', {
  description: 'ISO 8601 in UTC, with milliseconds',
  serialize: (value) => new Date(value).toISOString(),
  // The text itself goes on: the procedure's own schema checks it, in its own words.
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
  description: 'Any JSON value, where there is no schema: what a model gave to a tool, options of a provider',
  serialize: (value) => value,
  parseValue: (value) => value,
})

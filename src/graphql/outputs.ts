import type { InterfaceRef, ObjectRef } from '@pothos/core'
import type { GraphQLResolveInfo } from 'graphql'
import { z } from 'zod'
import { unwrap } from '../lib/fields.ts'
import { builder, type Extensions, type GraphQLContext, type Types } from './builder.ts'
import { type Field, lookUp, toField } from './inputs.ts'

const objects = new Map<z.ZodType, ObjectRef<Types, object>>()

/** Represents a schema as plain JSON wherever it is a field of an object. */
export const jsonFromZod = (schema: z.ZodObject): unknown => objects.set(schema, 'JSON' as never)

type Options<Shown> = {
  interfaces?: InterfaceRef<Types, { id: string }>[]
  extensions?: Extensions
  /** Extensions of its fields. */
  fields?: { [Field in keyof Shown]?: Extensions }
  /** Fields that need a resolver. */
  resolve?: {
    [Field in keyof Shown]?: (of: Shown, args: object, context: GraphQLContext, info: GraphQLResolveInfo) => unknown
  }
}

/**
 * Creates an object type from a schema, for data that is not a table row. Objects created later use the type wherever
 * they contain the schema.
 */
export function objectFromZod<Schema extends z.ZodObject>(
  name: string,
  schema: Schema,
  description: string,
  { interfaces = [], extensions = {}, fields = {}, resolve = {} }: Options<z.output<Schema>> = {},
): ObjectRef<Types, z.output<Schema>> {
  const ref = builder.objectRef<z.output<Schema>>(name)
  objects.set(schema, ref as unknown as ObjectRef<Types, object>)
  return ref.implement({
    description,
    interfaces: interfaces as [],
    extensions,
    fields: (t) =>
      Object.fromEntries(
        Object.entries(schema.shape).map(([field, of]) => {
          const { type, required, description } = outputField(field, of as z.ZodType)
          const options = {
            type: type as 'String',
            nullable: !required as never,
            extensions: fields[field as keyof typeof fields] ?? {},
            ...(description && { description }),
          }
          const resolver = resolve[field as keyof typeof resolve]
          return [
            field,
            resolver ? t.field({ ...options, resolve: resolver as never }) : t.expose(field as never, options),
          ]
        }),
      ) as never,
  })
}

type OutputField = Omit<Field, 'type'> & { type: unknown }

function outputField(name: string, schema: z.ZodType): OutputField {
  const plain = unwrap(schema)
  const element = plain instanceof z.ZodArray ? unwrap(plain.element) : plain
  const type = element instanceof z.ZodUnknown ? 'JSON' : lookUp(objects, element)
  if (!type) return toField(name, schema)
  return {
    type: plain instanceof z.ZodArray ? [type] : type,
    required: !schema.isOptional() && !schema.isNullable(),
    ...(schema.description && { description: schema.description }),
  }
}

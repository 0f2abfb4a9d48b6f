import type { ArgumentRef, EnumRef, InputRef, InputType } from '@pothos/core'
import { z } from 'zod'
import { toAppError } from '../errors.ts'
import { checkInput, unwrap } from '../lib/fields.ts'
import { builder, type Types } from './builder.ts'

/**
 * Derives GraphQL inputs from the procedures' schemas, so that each field is defined once. Only types are taken over.
 * The procedure validates values with the same message in every API.
 */

type Leaf = InputType<Types> &
  (
    | 'ID'
    | 'String'
    | 'Int'
    | 'Float'
    | 'Boolean'
    | 'DateTime'
    | 'Date'
    | 'JSON'
    | EnumRef<Types, string>
    | InputRef<object>
  )

/** A field of a Zod object in GraphQL terms. */
export type Field = { type: Leaf | [Leaf]; required: boolean; description?: string }

const enums = new Map<z.ZodType, EnumRef<Types, string>>()
const objects = new Map<z.ZodType, InputRef<object>>()

/** Registers an enum, or the literals, of a schema for GraphQL. The values are the same in every API. */
export function enumFromZod<Value extends string>(
  name: string,
  schema: z.ZodType<Value | null | undefined>,
  description: string,
): EnumRef<Types, Value> {
  const plain = unwrap(schema)
  const values = plain instanceof z.ZodEnum ? plain.options : plain instanceof z.ZodLiteral ? [...plain.values] : []
  const ref = builder.enumType(name, { description, values: values as unknown as readonly Value[] })
  enums.set(plain, ref as EnumRef<Types, string>)
  return ref as EnumRef<Types, Value>
}

/** Returns the arguments of a field, one for each field of the schema. */
export const argsFromZod = <Shape extends z.ZodRawShape>({ shape }: z.ZodObject<Shape>) =>
  builder.args((t) => mapFields(shape, (field) => t.field(field))) as {
    [Name in keyof Shape]: ArgumentRef<Types, z.input<Shape[Name]>>
  }

/** Creates an input type from a schema, used wherever the schema is a field of another one. */
export function inputFromZod<Schema extends z.ZodObject>(name: string, schema: Schema, description: string) {
  const ref = builder.inputRef<z.input<Schema>, false>(name).implement({
    description,
    fields: (t) => mapFields(schema.shape, (field) => t.field(field)) as never,
  })
  objects.set(schema, ref as unknown as InputRef<object>)
  return ref
}

/** Validates the arguments of a query like its procedure. Clients send null for absent arguments. */
export function parseArgs<Schema extends z.ZodObject>(schema: Schema, args: object): z.output<Schema> {
  checkInput(args)
  const given = Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null))
  const { success, data, error } = schema.safeParse(given)
  if (!success) throw toAppError(error, given)
  return data
}

const mapFields = <Ref>(shape: z.ZodRawShape, make: (field: Field, name: string) => Ref): Record<string, Ref> =>
  Object.fromEntries(Object.entries(shape).map(([name, schema]) => [name, make(toField(name, schema), name)]))

/** Converts a Zod schema into an input field. */
export function toField(name: string, given: z.core.$ZodType): Field {
  const schema = given as z.ZodType
  const plain = unwrap(schema)
  const description = descriptionOf(schema)
  return {
    type: plain instanceof z.ZodArray ? [toLeaf(name, unwrap(plain.element))] : toLeaf(name, plain),
    required: !schema.isOptional() && !schema.isNullable(),
    ...(description && { description }),
  }
}

/** Returns the description of a schema, or of the one that it makes optional. */
function descriptionOf(schema: z.ZodType): string | undefined {
  if (schema.description) return schema.description
  const isWrapped = schema instanceof z.ZodOptional || schema instanceof z.ZodNullable
  return isWrapped ? descriptionOf(schema.unwrap() as z.ZodType) : undefined
}

function toLeaf(name: string, schema: z.ZodType): Leaf {
  if (schema instanceof z.ZodISODateTime) return 'DateTime'
  if (schema instanceof z.ZodISODate) return 'Date'
  if (schema instanceof z.ZodString) return /^id$|Ids?$|^assign(ed)?To$/.test(name) ? 'ID' : 'String'
  // GraphQL's Int has 32 bits.
  if (schema instanceof z.ZodNumber) return schema.isInt && schema.meta()?.format !== 'int64' ? 'Int' : 'Float'
  if (schema instanceof z.ZodBoolean) return 'Boolean'
  if (schema instanceof z.ZodRecord) return 'JSON'
  const named = lookUp(enums, schema) ?? lookUp(objects, schema)
  if (named) return named
  throw new Error(`The field ${name} has a type without an equivalent in GraphQL: ${schema.def.type}`)
}

/** Finds the entry of a schema, or of the schema from which it differs only in its description. */
export function lookUp<Known>(known: ReadonlyMap<z.ZodType, Known>, schema: z.core.$ZodType): Known | undefined {
  const { parent } = schema._zod
  return known.get(schema as z.ZodType) ?? (parent && lookUp(known, parent))
}

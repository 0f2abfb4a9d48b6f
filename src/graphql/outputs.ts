import type { ObjectRef } from '@pothos/core'
import type { z } from 'zod'
import { builder, type Types } from './builder.ts'
import { mapFields } from './inputs.ts'

/** An object type with the fields of a schema, for what is no row: all that is known of it stands in the schema. */
export function objectFromZod<Schema extends z.ZodObject>(
  name: string,
  schema: Schema,
  description: string,
): ObjectRef<Types, z.output<Schema>> {
  const ref = builder.objectRef<z.output<Schema>>(name)
  return ref.implement({
    description,
    fields: (t) =>
      mapFields(schema.shape, ({ type, required, description }, field) =>
        t.expose(field as never, {
          type: type as 'String',
          nullable: !required as never,
          ...(description && { description }),
        }),
      ) as never,
  })
}

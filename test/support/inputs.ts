import { z } from 'zod'
import { unwrap } from '../../src/lib/fields.ts'
import { procedures } from './api.ts'

/** Fields of the inputs of procedures, read from their schemas, and values that they accept. */

type Shape = Readonly<Record<string, z.ZodType>>
export type Input = Record<string, unknown>

/** The fields of a procedure's input by name; none without an input. */
export function shapeOf(procedure: string): Shape {
  const { inputs } = procedures[procedure]!._def as unknown as { inputs: z.ZodType[] }
  return Object.assign({}, ...inputs.map((input) => shapeOfSchema(input)))
}

function shapeOfSchema(schema: z.ZodType): Shape {
  const plain = unwrap(schema)
  return plain instanceof z.ZodObject ? (plain.shape as Shape) : {}
}

export const isList = (schema: z.ZodType): boolean => unwrap(schema) instanceof z.ZodArray

/**
 * Returns whether a field takes ids of existing things, by its name: `id`, `…Id`, `…Ids`, and fields that add, remove,
 * assign or replace. `Last-Event-ID` is the number of an event.
 */
export const takesId = (name: string): boolean =>
  /^id$|Ids?$|^replaces$|^(add|remove|assign|assigned)[A-Z]/.test(name) && name !== 'lastEventId' && name !== 'clientId'

const texts = [
  'an-example',
  'AN_EXAMPLE',
  'https://example.com/',
  'notes.txt',
  'anthropic',
  'task.*',
  '2030-01-01',
  '2030-01-01T00:00:00.000Z',
]

/** The simplest value of a field. Throws for an unsupported type. */
export function exampleOf(given: z.ZodType): unknown {
  const schema = unwrap(given)
  if (schema instanceof z.ZodObject) return requiredOf(schema.shape as Shape)
  if (schema instanceof z.ZodArray) return [exampleOf(schema.element as z.ZodType)]
  if (schema instanceof z.ZodRecord) return { AN_EXAMPLE: exampleOf(schema.valueType as z.ZodType) }
  if (schema instanceof z.ZodEnum) return schema.options[0]
  if (schema instanceof z.ZodUnion) return exampleOf(schema.options[0] as z.ZodType)
  const candidates = schema instanceof z.ZodLiteral ? [...schema.values] : [...texts, 1, false]
  const found = candidates.find((candidate) => given.safeParse(candidate).success)
  if (found === undefined) throw new Error(`No example of ${schema.def.type}`)
  return found
}

/** The required fields. */
const requiredOf = (shape: Shape): Input =>
  Object.fromEntries(
    Object.entries(shape).flatMap(([name, field]) => (field.isOptional() ? [] : [[name, exampleOf(field)]])),
  )

/** The smallest input of a procedure, with ids of missing rows. */
export const leastOf = (procedure: string): Input => requiredOf(shapeOf(procedure))

/** Each value of each enumerated field. */
export const choicesOf = (procedure: string): Input[] =>
  Object.entries(shapeOf(procedure)).flatMap(([name, field]) => {
    const schema = unwrap(field)
    const values =
      schema instanceof z.ZodEnum ? schema.options : schema instanceof z.ZodLiteral ? [...schema.values] : []
    return values.map((value) => ({ [name]: value }))
  })

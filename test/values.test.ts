import { expect, it } from 'vitest'
import { z } from 'zod'
import { unwrap } from '../src/lib/fields.ts'
import { everything, inputWith } from './security/fixtures.ts'
import { APIS, apis, procedures } from './support/api.ts'
import { callRoot, inputsOf, ROOTS } from './support/graphql-api.ts'
import { type Input, shapeOf } from './support/inputs.ts'
import { startServer } from './support/server.ts'
import { use } from './support/use.ts'

/** Values beyond limits and columns, or between two of them. */
const NUMBERS = [2 ** 31, -(2 ** 31) - 1, 2 ** 53 - 1, 1e300, 0.5]
/** PostgreSQL cannot store any of these. */
const TEXT = 'a\0b'

/** Values of a field's type that no database accepts. */
function valuesOf(schema: z.ZodType): unknown[] {
  const plain = unwrap(schema)
  if (plain instanceof z.ZodNumber) return NUMBERS
  if (plain instanceof z.ZodArray) return [[TEXT]]
  if (plain instanceof z.ZodRecord) return [{ [TEXT]: 'x' }, { AN_EXAMPLE: TEXT }]
  return [TEXT]
}

const server = await use(startServer())
const member = await server.member({ role: 'owner' })
const own = await everything(server, member, 'values')

/** Returns the inputs whose answer is an internal failure. A mutation of GraphQL is tested as its procedure. */
async function failuresIn(procedure: string | null, field: string, inputs: Input[]): Promise<string[]> {
  const { token } = member
  const statuses: [string, unknown][] = []
  for (const input of inputs) {
    const text = JSON.stringify(input)
    for (const api of procedure === null ? [] : APIS) {
      const { status } = await apis[api](server, procedure!, input, { token })
      statuses.push([`${api} ${procedure} ${text}`, status])
    }
    for (const root of ROOTS.filter((root) => root.procedure === procedure && field in inputsOf(root))) {
      if (root.operation === 'mutation') continue
      const { errors = [] } = await callRoot(server, root, input, { token, depth: 0 })
      for (const { extensions } of errors) statuses.push([`${root.field.name} ${text}`, extensions.statusCode])
    }
  }
  return statuses.flatMap(([where, status]) => (Number(status) >= 500 ? where : []))
}

it.each(Object.keys(procedures))('%s: no value of any field causes an internal failure', async (procedure) => {
  const least = inputWith(procedure, null, undefined, own)
  for (const [field, schema] of Object.entries(shapeOf(procedure))) {
    const inputs = valuesOf(schema).map((value) => ({ ...least, [field]: value }))
    expect(await failuresIn(procedure, field, inputs)).toEqual([])
  }
})

it('GraphQL: no id causes an internal failure on a field without a procedure', async () => {
  expect(await failuresIn(null, 'id', [{ id: TEXT }])).toEqual([])
})

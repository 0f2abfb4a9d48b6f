import type { GraphQLResolveInfo } from 'graphql'
import { z } from 'zod'
import { requireScope } from '../auth/actor.ts'
import { Prisma } from '../db/client.ts'
import { AppError } from '../errors.ts'
import { builder, extensionsOf, type GraphQLContext } from './builder.ts'
import { argsFromZod, parseArgs } from './inputs.ts'
import { delegateOf, type Rows, selectRows } from './rows.ts'

type Found = { id: string }
type Find = (context: GraphQLContext, info: GraphQLResolveInfo, id: string) => Promise<object | null>

/** Node types that are stored in a table. */
const tables = new Map<string, Rows>()
/** Other node types, by GraphQL name. */
const others = new Map<string, Find>()

type Typed = Found & { __typename?: string }

const Node = builder.interfaceRef<Found>('Node').implement({
  description: 'An object with an id. Ids are unique across all types and the same in every API',
  fields: (t) => ({ id: t.exposeID('id', { description: 'Id, the same in every API' }) }),
  resolveType: (row: Typed) => row.__typename,
})

/** Returns the interfaces of a type whose rows `node` finds. */
export function nodeOf(rows: Rows) {
  tables.set(rows.model, rows)
  return [Node]
}

/** Registers a type that is not always a table row. It is asked if no table has the id. */
export function nodeBy(type: string, find: Find) {
  others.set(type, find)
  return [Node]
}

const find: Find = async (context, info, id) => {
  const { actor, deps } = context
  const selects = [...tables.keys()].map(
    (model) =>
      Prisma.sql`SELECT ${Prisma.raw(`'${model}'`)} AS "model" FROM ${Prisma.raw(`"${model}"`)} WHERE "id" = ${id}`,
  )
  const [found] = await deps.db.$queryRaw<{ model: string }[]>(Prisma.join(selects, ' UNION ALL '))
  const rows = found && tables.get(found.model)
  if (rows) {
    const where = { AND: [{ id }, rows.reachable(actor)] }
    const row = await delegateOf(deps.db, rows).findFirst({ ...selectRows(context, info, rows), where })
    return row && { ...row, __typename: rows.type }
  }
  for (const [type, find] of others) {
    const row = await find(context, info, id)
    if (row) return { ...row, __typename: type }
  }
  return null
}

const NodeArgs = z.object({ id: z.string().describe('Id of any Node') })

builder.queryField('node', (t) =>
  t.field({
    type: Node,
    nullable: true,
    description: 'Returns the object with this id if you can reach it. Needs the scope of its type',
    // The needed scopes are known once the object is found.
    extensions: { scopes: [], input: NodeArgs },
    args: argsFromZod(NodeArgs),
    async resolve(_, args, context, info) {
      const { id } = parseArgs(NodeArgs, args)
      const row = (await find(context, info, id)) as Typed | null
      if (!row)
        throw new AppError(404, 'Node not found', {
          detail:
            'There is no object with this id, or none that you can see. Check the id and the organization of the token.',
        })
      requireScope(context.actor, ...(extensionsOf(info.schema.getType(row.__typename!)!).scopes ?? []))
      return row
    },
  }),
)

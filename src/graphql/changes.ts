import type { ObjectRef } from '@pothos/core'
import type { GraphQLResolveInfo } from 'graphql'
import { z } from 'zod'
import { changes } from '../bus/changes.ts'
import type { Extensions, GraphQLContext, Types } from './builder.ts'
import { argsFromZod, parseArgs } from './inputs.ts'
import { delegateOf, loadRow, missing, type Rows } from './rows.ts'

const ChangeArgs = z.object({
  id: z.string().optional().describe('Only of this one. The subscription ends when it is gone'),
  spaceId: z.string().optional().describe('Only in this space'),
})

/** Clocks of servers differ (ms). */
const LOOK_BACK = 10_000

/**
 * The options of a subscription to the rows of a type that are made or changed: each as it is by then, if the caller can
 * see it by then, so that several changes at once are told as one. What is deleted is told (as null) to who follows it
 * by its id, 404 if it is not there from the start.
 */
export const changeField = <Row extends object>(
  type: ObjectRef<Types, Row>,
  rows: Rows<Row>,
  channel: 'task' | 'chat',
  { description, scopes }: { description: string; scopes: NonNullable<Extensions['scopes']> },
) => ({
  type,
  nullable: true as const,
  description,
  extensions: { scopes, input: ChangeArgs },
  args: argsFromZod(ChangeArgs),
  // Refused before the first event, or not at all.
  async subscribe(_: unknown, args: object, context: GraphQLContext) {
    const { id, spaceId } = parseArgs(ChangeArgs, args)
    const find = seen(context, rows, spaceId)
    if (id !== undefined && !(await find({ id: { in: [id] } })).length) throw missing(rows)
    return follow(context, channel, id, find)
  },
  resolve: (id: string, _: object, context: GraphQLContext, info: GraphQLResolveInfo) =>
    loadRow(context, info, rows, id) as never,
})

type Find = (which: object) => Promise<string[]>

/** The ids of some rows that the caller can see. */
function seen<Row extends object>({ actor, deps }: GraphQLContext, rows: Rows<Row>, spaceId?: string): Find {
  return async (which) => {
    const where = { AND: [which, rows.listed(actor), spaceId === undefined ? {} : { spaceId }] }
    const orderBy = [{ updatedAt: 'asc' }, { id: 'asc' }]
    const found = await delegateOf(deps.db, rows).findMany({ where, orderBy, take: 1000, select: { id: true } })
    return found.map((row) => (row as unknown as { id: string }).id)
  }
}

async function* follow(
  { actor, deps, gone }: GraphQLContext,
  channel: 'task' | 'chat',
  id: string | undefined,
  find: Find,
): AsyncGenerator<string> {
  const signal = deps.revocations.watch(actor, gone())
  let since = deps.clock.now()
  for await (const told of changes(deps.bus, channel, signal)) {
    if (id !== undefined && told && !told.includes(id)) continue
    const which = id !== undefined ? [id] : told
    const from = new Date(since.getTime() - LOOK_BACK)
    since = deps.clock.now()
    const found = await find(which ? { id: { in: which } } : { updatedAt: { gte: from } })
    yield* found
    if (id !== undefined && !found.length) {
      yield id
      return
    }
  }
}

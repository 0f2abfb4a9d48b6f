import type { ObjectRef } from '@pothos/core'
import type { GraphQLResolveInfo } from 'graphql'
import { z } from 'zod'
import { followIds, type Looked } from '../bus/follow-changes.ts'
import { MAX_IN } from '../db/fast-path/index.ts'
import { throwRefusal } from '../errors.ts'
import { chunk } from '../lib/chunk.ts'
import type { Extensions, GraphQLContext, Types } from './builder.ts'
import { afterCursor, type Order, orderBy, toCursor } from './cursor.ts'
import { argsFromZod, parseArgs } from './inputs.ts'
import { delegateOf, loadRow, missing, type Rows } from './rows.ts'

const ChangeArgs = z.object({
  id: z.string().optional().describe('Only this object. The subscription ends when it is deleted'),
  spaceId: z.string().optional().describe('Only in this space'),
})

/**
 * Returns the options of a subscription to created and changed rows of a type. Each row is sent in its current state if
 * the caller can see it, so that several changes at once are one event. A deletion is sent as null to subscribers of
 * that id. An id that does not exist at the start is a 404.
 */
export const changeField = <Row extends { id: string }>(
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
  // Errors are reported before the first event, or not at all.
  async subscribe(_: unknown, args: object, context: GraphQLContext) {
    const { id, spaceId } = parseArgs(ChangeArgs, args)
    const { actor, deps, streamTo } = context
    const find = seen(context, rows, spaceId)
    if (id !== undefined && (await find({ ids: [id] }).next()).done) throw missing(rows)
    const signal = streamTo(actor)
    return followRows(followIds(deps, channel, signal), signal, id, find)
  },
  resolve: (id: string, _: object, context: GraphQLContext, info: GraphQLResolveInfo) =>
    loadRow(context, info, rows, id) as never,
})

type Find = (which: { ids: readonly string[]; since?: Date } | Looked) => AsyncGenerator<string>

const OLDEST_FIRST: Order = [
  ['updatedAt', 'asc'],
  ['id', 'asc'],
]

/** Returns the visible ids among changed rows, however many accumulated before they were taken. */
function seen({ actor, deps }: GraphQLContext, rows: Rows<{ id: string }>, spaceId?: string): Find {
  const inSpace = spaceId === undefined ? {} : { spaceId }
  const query = { orderBy: orderBy(OLDEST_FIRST), take: MAX_IN, select: { id: true, updatedAt: true } }
  async function* pages(which: object): AsyncGenerator<string> {
    let last: string | undefined
    do {
      const where = { AND: [which, rows.listed(actor), inSpace, afterCursor(OLDEST_FIRST, last)] }
      const found = await delegateOf(deps.db, rows).findMany({ ...query, where })
      for (const { id } of found) yield id
      last = found.length === MAX_IN ? toCursor(OLDEST_FIRST, found.at(-1)!) : undefined
    } while (last)
  }
  return async function* (which) {
    if (!which.ids) yield* pages({ updatedAt: { gte: which.since } })
    else for (const ids of chunk(which.ids, MAX_IN)) yield* pages({ id: { in: ids } })
  }
}

async function* followRows(
  notices: AsyncIterable<Looked>,
  signal: AbortSignal,
  id: string | undefined,
  find: Find,
): AsyncGenerator<string> {
  for await (const looked of notices) {
    if (id !== undefined && looked.ids && !looked.ids.includes(id)) continue
    let found = false
    for await (const one of find(id !== undefined ? { ids: [id] } : looked)) {
      // The caller may pull changes late and one by one. Each row is read when it is pulled.
      throwRefusal(signal)
      if (signal.aborted) return
      found = true
      yield one
    }
    if (id !== undefined && !found) {
      yield id
      return
    }
  }
}

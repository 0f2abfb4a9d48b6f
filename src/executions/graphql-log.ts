import type { GraphQLResolveInfo } from 'graphql'
import { builder, type GraphQLContext } from '../graphql/builder.ts'
import { connectionType, LIST_COST, toConnection } from '../graphql/connection.ts'
import { fromCursor, type Order, reversed } from '../graphql/cursor.ts'
import { argsFromZod, enumFromZod, parseArgs } from '../graphql/inputs.ts'
import { readLists } from '../graphql/lists.ts'
import { loadOne } from '../graphql/loader.ts'
import { NOTHING, type Page, pageOf, partOf, RELATION_ROWS, RelationArgs } from '../graphql/page.ts'
import { procedureExtensions } from '../graphql/procedures.ts'
import { rowsOf } from '../graphql/rows.ts'
import { batchesOf, eachOf } from '../subscriptions.ts'
import {
  EDGE_COLUMNS,
  type Edge,
  type ExecutionEvent,
  fromSegment,
  metaEvent,
  terminalEvent,
} from './engine/events/events.ts'
import { stateOf } from './follow.ts'
import { Execution, isReadable } from './graphql.ts'
import { Event } from './graphql-events.ts'
import { executions } from './router.ts'
import * as schema from './schema.ts'

// The log of an execution: its events so far by pages, and the subscription to them.

const EVENT_ORDER = [['seq', 'asc']] as const
const Events = connectionType('ExecutionEvent', Event, 'events of an execution, in order', { counted: false })

type Segment = { executionId: string; firstSeq: number; lastSeq: number; at: Date; events: string }

const SEGMENT = rowsOf<Segment>('ExecutionEvent', 'ExecutionEvent', () => ({}), {
  order: [['firstSeq', 'asc']],
  key: ['firstSeq'],
})

builder.prismaObjectFields(Execution, (t) => ({
  events: t.field({
    type: Events,
    description: 'Events so far',
    nullable: true,
    args: argsFromZod(RelationArgs),
    extensions: { ...procedureExtensions(executions.logs).extensions, rows: RELATION_ROWS, cost: LIST_COST },
    select: EDGE_COLUMNS,
    resolve: async (row, args, context, info) => {
      const page = pageOf(parseArgs(RelationArgs, args), RELATION_ROWS)
      const { backwards } = page
      const [from, to] = rangeOf(page)
      const isOpen = await isReadable(row.id, context, info)
      const stored = isOpen ? await loadSegments(context, info, row.id, page) : null
      const { rows: segments, more } = stored ?? NOTHING
      const all = eventsOf(row, segments, { fromStart: !(more && backwards), toEnd: !(more && !backwards) })
      const between = eventsIn(isOpen ? all : stateOf([...all]), [from, to], page)
      const part = partOf(between, page)
      const exists = async (order: Order, _: object, info: GraphQLResolveInfo): Promise<boolean> => {
        if (order[0]?.[1] === 'desc') return metaEvent(row).seq <= from
        if ((terminalEvent(row)?.seq ?? -1) >= to) return true
        if (!isOpen) return false
        return hasSegmentFrom(context, info, row.id, to)
      }
      return toConnection({ ...part, more: more || part.more }, page, EVENT_ORDER, () => 0, exists)
    },
  }),
}))

/** Returns the numbers between which the events of a page lie; both are outside of it. */
const rangeOf = ({ after, before }: Page): [from: number, to: number] => [
  after === undefined ? 0 : Number(fromCursor(EVENT_ORDER, after)[0]),
  before === undefined ? Number.MAX_SAFE_INTEGER : Number(fromCursor(EVENT_ORDER, before, 'before')[0]),
]

/** Returns the events of a page and one more if there is one, in the direction in which the page is read. */
function eventsIn(events: Iterable<ExecutionEvent>, [from, to]: [number, number], { take, backwards }: Page) {
  const between: ExecutionEvent[] = []
  for (const event of events) {
    if (event.seq > from && event.seq < to) between.push(event)
    if (!backwards && between.length > take) break
  }
  return backwards ? between.reverse() : between
}

/** Loads the segments with the events of a page. Null if there are none. */
const loadSegments = (context: GraphQLContext, info: GraphQLResolveInfo, id: string, page: Page) =>
  loadOne(context, info, id, async (ids) => {
    const [from, to] = rangeOf(page)
    // At least one event of each segment is between the numbers.
    const where = { lastSeq: { gt: from }, ...(page.before !== undefined && { firstSeq: { lt: to } }) }
    const order = page.backwards ? reversed(SEGMENT.order) : SEGMENT.order
    const read = { ids, column: 'executionId', where, take: page.take + 1, query: {} }
    const found = await readLists(context, { ...SEGMENT, order }, read)
    const lists = Map.groupBy(found, ({ executionId }) => executionId)
    return new Map(Array.from(lists, ([id, list]) => [id, partOf(list, page)]))
  })

/** Returns whether an execution has stored events from a number on. */
async function hasSegmentFrom(
  context: GraphQLContext,
  info: GraphQLResolveInfo,
  id: string,
  seq: number,
): Promise<boolean> {
  const isFound = await loadOne(context, info, id, async (ids) => {
    const read = { ids, column: 'executionId', where: { lastSeq: { gte: seq } }, take: 1, query: {} }
    const found = await readLists(context, SEGMENT, read)
    return new Map(found.map(({ executionId }) => [executionId, true]))
  })
  return isFound ?? false
}

/** Yields the events of these segments in order, and whether they are the first and the last ones. */
function* eventsOf(
  row: Edge,
  segments: readonly Segment[],
  { fromStart, toEnd }: { fromStart: boolean; toEnd: boolean },
): Generator<ExecutionEvent> {
  if (fromStart) yield metaEvent(row)
  for (const segment of segments) yield* fromSegment(segment)
  const terminal = toEnd && terminalEvent(row)
  if (terminal) yield terminal
}

enumFromZod('StreamContent', schema.FollowExecution.shape.content, 'Content of a complete step in a stream')

const Follow = schema.FollowExecution.omit({ lastEventId: true })

builder.subscriptionField('executionEvents', (t) =>
  t.field({
    ...procedureExtensions(executions.events),
    description: 'Events of an execution from the start or `after` a number, live while it runs, then the end',
    type: Event,
    args: argsFromZod(Follow),
    // Errors are reported before the first event, or not at all.
    subscribe: async (_, args, { caller }) =>
      eachOf(batchesOf(await caller.executions.events(parseArgs(Follow, args)))),
    resolve: (event) => event,
  }),
)

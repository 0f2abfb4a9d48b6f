import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { EDGE_COLUMNS, type Edge } from '../executions/engine/events/events.ts'
import { LIVE } from '../executions/engine/queue/cancel-marks.ts'
import { type ChatPosition, NOWHERE } from './position.ts'
import { isAfter, type Sent } from './sent.ts'

/** Maximum number of runs that are replayed. Beyond it the client must read the messages instead. */
const MAX_MISSED = 100
/** Maximum number of runs that one search for new ones reads. */
const MAX_FOUND = 1_000
/** Maximum clock difference between servers (ms). A run may become visible after one that was accepted later. */
const LOOK_BACK = 10_000
const DAY = 24 * 60 * 60 * 1000

const ORDER: Prisma.ExecutionOrderByWithRelationInput[] = [{ createdAt: 'asc' }, { id: 'asc' }]
const NEWEST: Prisma.ExecutionOrderByWithRelationInput[] = [{ createdAt: 'desc' }, { id: 'desc' }]

/** Finds the runs of a chat that a subscriber does not have yet. */
export type RunFinder = {
  /**
   * Begins after a position. Returns false, and begins nothing, if its event no longer exists or too much has happened
   * since.
   */
  resume(position: ChatPosition): Promise<boolean>
  /** Begins with the active runs, from their start. */
  beginNow(): Promise<void>
  /** Finds newly accepted runs, oldest first. */
  discover(): Promise<Edge[]>
}

/** Creates the finder of one subscriber. `begin` sends a run from a number on. */
export function createRunFinder(
  deps: Pick<Deps, 'db' | 'clock' | 'settings'>,
  ofChat: Prisma.ExecutionWhereInput,
  sent: Sent,
  begin: (edge: Edge, seq: number) => unknown,
): RunFinder {
  const { db } = deps
  const known = new Set<string>()
  const fresh = (edges: readonly Edge[]) => edges.filter(({ id }) => !known.has(id) && known.add(id))
  const find = (where: Prisma.ExecutionWhereInput, take?: number) =>
    db.execution.findMany({
      where: { AND: [ofChat, where] },
      select: EDGE_COLUMNS,
      orderBy: ORDER,
      ...(take !== undefined && { take }),
    })
  const since = (time: Date | null, take: number) => find(time ? { createdAt: { gte: time } } : {}, take)

  /** Marks runs accepted shortly before the newest one as sent, because `discover` looks back. */
  async function passOthers(): Promise<void> {
    const last = sent.newest()
    if (!last) return
    const before = await since(new Date(last.createdAt.getTime() - LOOK_BACK), MAX_FOUND)
    for (const edge of before) if (!isAfter(edge, last)) known.add(edge.id)
  }

  return {
    async resume(position) {
      const isNowhere = position[0]?.executionId === NOWHERE
      const seqs = new Map(position.map(({ executionId, seq }) => [executionId, seq]))
      const named = isNowhere ? [] : await find({ id: { in: [...seqs.keys()] } })
      const own = named.find(({ id }) => id === position[0]?.executionId)
      const last = named.at(-1)
      if (!isNowhere && (!own || (await isForgotten(deps, own, seqs.get(own.id) ?? 0)))) return false
      const later = (await since(last?.createdAt ?? null, MAX_MISSED + seqs.size + 1)).filter(
        (edge) => !last || isAfter(edge, last),
      )
      if (later.length > MAX_MISSED) return false
      for (const edge of named) {
        const seq = seqs.get(edge.id) ?? 0
        known.add(edge.id)
        if (edge.terminalSeq !== null && seq >= edge.terminalSeq) sent.pass(edge)
        else begin(edge, seq)
      }
      for (const edge of fresh([...(await find(LIVE)), ...later])) begin(edge, 0)
      await passOthers()
      return true
    },
    async beginNow() {
      const last = await db.execution.findFirst({ where: ofChat, select: EDGE_COLUMNS, orderBy: NEWEST })
      for (const edge of fresh(await find(LIVE))) begin(edge, 0)
      for (const edge of last ? fresh([last]) : []) sent.pass(edge)
      await passOthers()
    },
    async discover() {
      const newest = sent.newest()
      return fresh(await since(newest && new Date(newest.createdAt.getTime() - LOOK_BACK), MAX_FOUND))
    },
  }
}

/** Returns whether events after a number of an ended run were removed because of their age. */
async function isForgotten(
  { db, clock, settings }: Pick<Deps, 'db' | 'clock' | 'settings'>,
  { id, terminalSeq, createdAt }: Edge,
  seq: number,
): Promise<boolean> {
  if (terminalSeq === null || seq >= terminalSeq) return false
  if (createdAt.getTime() > clock.now().getTime() - settings.EVENT_RETENTION_DAYS * DAY) return false
  return !(await db.executionEvent.findFirst({ where: { executionId: id }, select: { firstSeq: true } }))
}

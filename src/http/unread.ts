import type { ServerResponse } from 'node:http'
import type { Logger } from 'pino'
import type { Actor } from '../auth/actor.ts'
import { createRegistry } from '../lib/registry.ts'
import type { Settings } from '../settings.ts'
import { heldBackOf } from './back-pressure.ts'

/** How often open responses are examined (ms). */
const INTERVAL = 1_000
/** Maximum time without progress of a response that has unsent bytes (ms). */
const MAX_STALL = 30_000
/** The share of an organization's limit that one token may use. */
export const TOKEN_SHARE = 1 / 4
/** Responses with fewer unsent bytes than this are ignored, without looking up their caller (bytes). */
const SMALL = 64 * 1024

type Open = {
  readonly key: number
  readonly res: ServerResponse
  /** Authenticates the caller; null afterwards. */
  authenticate: (() => Promise<Actor>) | null
  /** The groups whose limits the response counts against: its token and organization, or the client's address. */
  groups: readonly [token: string, organization: string] | null
  unsent: number
  /** Changes when the client reads bytes. */
  taken: number
  queued: number
  progressAt: number
}

export type UnreadLimit = {
  /**
   * Watches a response until the returned function is called, once it has closed. `authenticate` gives the caller whose
   * limits it counts against.
   */
  watch(res: ServerResponse, authenticate: () => Promise<Actor>): () => void
  /** Examines all open responses now. */
  check(): void
}

/**
 * Bounds the memory of responses that clients do not read. A response without progress for 30 s is ended; unsent bytes
 * are limited to `MAX_UNSENT_BYTES` per organization and a quarter of that per token. Beyond a limit the response idle
 * for longest is ended first; the last response of a token or organization is left, however large it is.
 */
export function createUnreadLimit(
  { MAX_UNSENT_BYTES }: Pick<Settings, 'MAX_UNSENT_BYTES'>,
  log: Logger,
  maxStall = MAX_STALL,
): UnreadLimit {
  const responses = createRegistry<number, Open>()
  let watched = 0
  let timer: NodeJS.Timeout | null = null

  function end(open: Open, reason: string): void {
    const { res, unsent, groups } = open
    responses.delete(open.key)
    log.warn({ unsent, group: groups?.[1], path: res.req.url?.split('?', 1)[0] }, `ended an unread response: ${reason}`)
    res.destroy()
  }

  function check(): void {
    const now = performance.now()
    const unread: Open[] = []
    for (const open of responses.values()) {
      examine(open, now)
      if (!open.unsent) continue
      if (now - open.progressAt >= maxStall) end(open, 'the client took nothing for too long')
      else if (open.unsent > SMALL) unread.push(open)
    }
    unread.sort((a, b) => a.progressAt - b.progressAt)
    for (const open of unread) identify(open, check)
    shed(unread, 1, MAX_UNSENT_BYTES)
    shed(unread, 0, MAX_UNSENT_BYTES * TOKEN_SHARE)
    if (responses.size) return
    clearInterval(timer ?? undefined)
    timer = null
  }

  /** Ends responses of each group, idle for longest first, until the group is within its limit or has one left. */
  function shed(unread: readonly Open[], level: 0 | 1, limit: number): void {
    const left = unread.filter(({ key }) => responses.has(key))
    const totals = new Map<string, { bytes: number; count: number }>()
    for (const { groups, unsent } of left) {
      if (!groups) continue
      const total = totals.get(groups[level]) ?? { bytes: 0, count: 0 }
      totals.set(groups[level], { bytes: total.bytes + unsent, count: total.count + 1 })
    }
    for (const open of left) {
      const total = open.groups && totals.get(open.groups[level])
      if (!total || total.bytes <= limit || total.count === 1) continue
      total.bytes -= open.unsent
      total.count--
      end(open, `more than ${limit} bytes were unsent for its ${level ? 'organization' : 'token'}`)
    }
  }

  return {
    watch(res, authenticate) {
      const key = watched++
      responses.set(key, { key, res, authenticate, groups: null, unsent: 0, taken: -1, queued: 0, progressAt: 0 })
      timer ??= setInterval(check, Math.min(INTERVAL, maxStall)).unref()
      return () => responses.delete(key)
    },
    check,
  }
}

/** Measures a response: its unsent bytes, and the time of the last progress. */
function examine(open: Open, now: number): void {
  const { res } = open
  const { socket } = res.req
  open.unsent = res.writableLength + heldBackOf(res)
  const taken = socket.bytesWritten - socket.writableLength
  // The operating system may have accepted a part of one large write.
  const queued = (socket as { _handle?: { writeQueueSize?: number } })._handle?.writeQueueSize ?? 0
  if (open.unsent && taken === open.taken && queued === open.queued) return
  Object.assign(open, { taken, queued, progressAt: now })
}

/** Returns the groups whose limits the responses to a caller count against: its token, or its person, and organization. */
export const groupsOf = ({ tokenId, userId, organizationId }: Actor) =>
  [`${organizationId} ${tokenId || userId}`, organizationId] as const

/** Authenticates the caller of a response, then calls `done`. Invalid tokens share the limits of their address. */
function identify(open: Open, done: () => void): void {
  const { authenticate, res } = open
  open.authenticate = null
  authenticate?.()
    .then(groupsOf, () => {
      const address = `address ${res.req.socket.remoteAddress}`
      return [address, address] as const
    })
    .then((groups) => {
      open.groups = groups
      done()
    })
}

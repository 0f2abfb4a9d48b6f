import type { ServerResponse } from 'node:http'
import type { Actor } from '../auth/actor.ts'
import { unavailable } from '../errors.ts'
import { sizeOf } from '../lib/page.ts'
import type { Settings } from '../settings.ts'
import { malformed } from './malformed.ts'
import { hasLongText } from './pieces.ts'
import { groupsOf, TOKEN_SHARE } from './unread.ts'

type Read<Result> = () => Promise<Result>
/** The large answers of a token or an organization that have not arrived yet, with their sizes. */
type Group = { key: string; limit: number; answers: Map<ServerResponse, number> }
type Groups = readonly [token: Group, organization: Group]
type Waiting = { res: ServerResponse; size: number; groups: Groups; begin: () => void }

/** Maximum wait of a read (ms). Proxies give up then. */
const PATIENCE = 60_000

/** Limit of an organization in a small container, at least (bytes). */
const MIN_LIMIT = 16 * 1024 * 1024

/**
 * Returns the limit of an organization in a container with a limit of memory (bytes), 0 for none. An answer takes about
 * four times its text, with garbage.
 */
const limitWithin = (memory: number): number => Math.max(MIN_LIMIT, (memory || Infinity) / 16)

const tooMany = () =>
  unavailable(undefined, 'Other large answers of the organization take too long. Repeat the request in a moment.')

export type LargeReads = {
  /**
   * Returns the result of a read for a response. If it has waited, it calls `recheck`, because the access of the caller
   * may have ended meanwhile, and reads again. Throws if the client has gone, and 503 if it would wait for more than a
   * minute.
   */
  read<Result>(actor: Actor, res: ServerResponse, read: Read<Result>, recheck: () => Promise<unknown>): Promise<Result>
}

/**
 * Bounds the memory of large answers that are read at once. Those of an organization have at most `MAX_UNSENT_BYTES`
 * together, less in a small container, and those of a token its share, or there is one. Further reads wait in order,
 * without their results, until earlier responses have closed. Only a read tells how large its answer is, so that small
 * ones never wait.
 */
export function createLargeReads(
  { MAX_UNSENT_BYTES }: Pick<Settings, 'MAX_UNSENT_BYTES'>,
  memory = process.constrainedMemory(),
  patience = PATIENCE,
): LargeReads {
  const limit = Math.min(MAX_UNSENT_BYTES, limitWithin(memory))
  const groups = new Map<string, Group>()
  let waiting: Waiting[] = []

  function groupsFor(actor: Actor): Groups {
    const [token, organization] = groupsOf(actor)
    const groupOf = (key: string, limit: number) => {
      const group = groups.get(key) ?? { key, limit, answers: new Map() }
      groups.set(key, group)
      return group
    }
    return [groupOf(token, limit * TOKEN_SHARE), groupOf(organization, limit)]
  }

  const fits = ({ answers, limit }: Group, size: number): boolean =>
    !answers.size || answers.values().reduce((total, each) => total + each, size) <= limit
  const fitsIn = ([token, organization]: Groups, size: number) => fits(token, size) && fits(organization, size)

  function add(res: ServerResponse, size: number, its: Groups): void {
    const known = its[0].answers.get(res)
    for (const { answers } of its) answers.set(res, (known ?? 0) + size)
    if (known === undefined) res.once('close', () => leave(res, its))
  }

  function leave(res: ServerResponse, its: Groups): void {
    for (const { answers } of its) answers.delete(res)
    beginNext()
    forget(its)
  }

  /** Begins the reads that fit now. */
  function beginNext(): void {
    for (let next = findNext(); next; next = findNext()) {
      // The reads of a batch share a response, which closes after all of them.
      const together = Map.groupBy(waiting, (each) => each.res === next?.res)
      waiting = together.get(false) ?? []
      for (const { res, size, groups, begin } of together.get(true) ?? []) {
        add(res, size, groups)
        begin()
      }
    }
  }

  /** Removes groups without answers and without reads that wait. */
  function forget(its: Groups): void {
    const wanted = new Set(waiting.flatMap(({ groups }) => groups))
    for (const group of its) if (!group.answers.size && !wanted.has(group)) groups.delete(group.key)
  }

  /** Finds the first read that fits. No read overtakes another of its token, or one that lacks only its organization's. */
  function findNext(): Waiting | undefined {
    const behind = new Set<Group>()
    return waiting.find(({ size, groups }) => {
      const [token, organization] = groups
      const isNext = !groups.some((group) => behind.has(group))
      if (isNext && fitsIn(groups, size)) return true
      behind.add(fits(token, size) ? organization : token)
      return false
    })
  }

  /** Counts an answer of a size. Returns a promise of its turn if it has to wait, else null. */
  function admit(actor: Actor, res: ServerResponse, size: number): Promise<void> | null {
    if (!size || res.closed) return null
    const its = groupsFor(actor)
    if (its[0].answers.has(res)) {
      add(res, size, its)
      return null
    }
    const turn = Promise.withResolvers<void>()
    const own = { res, size, groups: its, begin: turn.resolve }
    waiting.push(own)
    if (findNext() === own) {
      waiting.pop()
      add(res, size, its)
      return null
    }
    const giveUp = (error: Error) => {
      waiting = waiting.filter((each) => each !== own)
      // Smaller ones may have waited behind it.
      beginNext()
      forget(its)
      turn.reject(error)
    }
    const timer = setTimeout(() => giveUp(tooMany()), patience)
    const onClose = () => giveUp(malformed())
    res.once('close', onClose)
    return turn.promise.finally(() => {
      clearTimeout(timer)
      res.off('close', onClose)
    })
  }

  return {
    async read(actor, res, read, recheck) {
      // A result that has to wait is let go here.
      const attempt = async () => {
        const result = await read()
        const turn = admit(actor, res, sizeOfLong(result as { data?: unknown }))
        return turn ? { turn } : { done: { result } }
      }
      const { turn, done } = await attempt()
      if (done) return done.result
      await turn
      await recheck()
      return read()
    },
  }
}

/** Returns the size of an answer with a long text (characters), and 0 of any other. */
const sizeOfLong = ({ data }: { data?: unknown }): number =>
  hasLongText(data) ? sizeOf(data, (text) => text.length) : 0

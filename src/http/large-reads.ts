import type { ServerResponse } from 'node:http'
import type { Actor } from '../auth/actor.ts'
import { sizeOf } from '../lib/page.ts'
import type { Settings } from '../settings.ts'
import { malformed } from './malformed.ts'
import { hasLongText } from './pieces.ts'
import { groupsOf, TOKEN_SHARE } from './unread.ts'

type Read<Result> = () => Promise<Result>
type Waiting = { res: ServerResponse; size: number; begin: () => void }

/** The large answers of one token that have not arrived yet, with their sizes, and the reads that wait for them. */
type Group = { answers: Map<ServerResponse, number>; waiting: Waiting[] }

export type LargeReads = {
  /** Returns the result of a read for a response, which reads again if it has waited. Throws if the client has gone. */
  read<Result>(actor: Actor, res: ServerResponse, read: Read<Result>): Promise<Result>
}

/**
 * Bounds the memory of large answers to one token that are read at once. Together they have at most the token's share
 * of `MAX_UNSENT_BYTES`, or there is one. Further reads wait in order, without their results, until earlier responses
 * have closed. Only a read tells how large its answer is, so that small ones never wait.
 */
export function createLargeReads({ MAX_UNSENT_BYTES }: Pick<Settings, 'MAX_UNSENT_BYTES'>): LargeReads {
  const groups = new Map<string, Group>()

  function fits({ answers }: Group, size: number): boolean {
    if (!answers.size) return true
    return answers.values().reduce((total, each) => total + each, size) <= MAX_UNSENT_BYTES * TOKEN_SHARE
  }

  function add(key: string, group: Group, res: ServerResponse, size: number): void {
    const known = group.answers.get(res)
    group.answers.set(res, (known ?? 0) + size)
    if (known === undefined) res.once('close', () => leave(key, group, res))
  }

  function leave(key: string, group: Group, res: ServerResponse): void {
    group.answers.delete(res)
    for (let [next] = group.waiting; next && fits(group, next.size); [next] = group.waiting) {
      const { res } = next
      // The reads of a batch share a response, which closes after all of them.
      const together = Map.groupBy(group.waiting, (each) => each.res === res)
      group.waiting = together.get(false) ?? []
      for (const { size, begin } of together.get(true) ?? []) {
        add(key, group, res, size)
        begin()
      }
    }
    if (!group.answers.size) groups.delete(key)
  }

  /** Counts an answer of a size. Returns a promise of its turn if it has to wait, else null. */
  function admit(actor: Actor, res: ServerResponse, size: number): Promise<void> | null {
    if (!size || res.closed) return null
    const [key] = groupsOf(actor)
    const group: Group = groups.get(key) ?? { answers: new Map(), waiting: [] }
    groups.set(key, group)
    if (group.answers.has(res) || (!group.waiting.length && fits(group, size))) {
      add(key, group, res, size)
      return null
    }
    return new Promise((resolve, reject) => {
      const waiting = { res, size, begin: resolve }
      group.waiting.push(waiting)
      res.once('close', () => {
        group.waiting = group.waiting.filter((each) => each !== waiting)
        reject(malformed())
      })
    })
  }

  return {
    async read(actor, res, read) {
      // A result that has to wait is let go here.
      const attempt = async () => {
        const result = await read()
        const turn = admit(actor, res, sizeOfLong(result as { data?: unknown }))
        return turn ? { turn } : { done: { result } }
      }
      const { turn, done } = await attempt()
      if (done) return done.result
      await turn
      return read()
    },
  }
}

/** Returns the size of an answer with a long text (characters), and 0 of any other. */
const sizeOfLong = ({ data }: { data?: unknown }): number => (hasLongText(data) ? sizeOf(data) : 0)

import { raceTimeout } from '../../lib/race-abort.ts'
import type { Statement } from '../fast-path/index.ts'
import { combine } from './combine.ts'
import { type Connections, isOfStatement } from './pool.ts'
import { BEGIN, COMMIT, type Prepare, sendCommit, sendWhole } from './transaction.ts'

/** Maximum number of groups that are executed at once. */
const MAX_GROUPS = 2
/**
 * A group costs almost the same for few members as for many, and groups wait for each other's rows. So fewer than
 * {@link MIN_MORE} members wait for the group before theirs, up to a time (ms).
 */
const MIN_MORE = 8
const MAX_WAIT = 20
/**
 * Maximum number of members of a group, and maximum length of its values, beyond which no member joins (characters).
 */
const MAX_MEMBERS = 16
const MAX_LENGTH = 256 * 1024

/**
 * Limits the time for which the members of a group wait for a lock that one of them needs, and for which later groups
 * wait for that group (ms).
 */
const PATIENCE = 1_000
const LOCK_TIMEOUT = { sql: `SET LOCAL lock_timeout = ${PATIENCE}`, args: [] }

type Member = PromiseWithResolvers<void> & { statements: readonly Statement[]; length: number }

/**
 * Executes transactions whose statements are all known. Transactions that arrive in one turn of the event loop, or
 * while other groups are executed, become one transaction of PostgreSQL. It has one COMMIT, and one set of locks on
 * rows that its members share. If a statement fails, the group is rolled back and its members are executed one by one,
 * so that only the member whose statement it is fails. If the outcome of COMMIT is unknown, all members fail.
 */
export function createGroupCommit({ take, give }: Connections, prepare: Prepare, pooled: boolean) {
  const waiting: Member[] = []
  let executing = 0
  /** Number of groups that are executed and have begun less than {@link MAX_WAIT} ago. */
  let recent = 0
  let isScheduled = false

  async function execute(members: readonly Member[]): Promise<void> {
    let error: unknown
    try {
      error = await executeTogether(members)
    } catch (reason) {
      error = reason
    }
    if (error === undefined) for (const { resolve } of members) resolve()
    else if (members.length === 1 || !isOfStatement(error)) for (const { reject } of members) reject(error)
    else await Promise.all(members.map((member) => execute([member])))
  }

  async function executeTogether(members: readonly Member[]): Promise<unknown> {
    const client = await take()
    const statements = combine(members.map(({ statements }) => statements))
    const [only, ...more] = statements
    // Behind a pooler, the isolation level may be another one unless BEGIN sets it.
    if (only && members.length === 1 && !more.length && !pooled) return sendWhole(client, prepare(only, false), give)
    const first = members.length > 1 ? [BEGIN, LOCK_TIMEOUT] : [BEGIN]
    const all = [...first, ...statements, COMMIT]
    return sendCommit(
      client,
      all.map((statement) => prepare(statement, false)),
      give,
    )
  }

  function nextGroup(): Member[] {
    let length = 0
    let count = 0
    while (count < waiting.length && count < MAX_MEMBERS && length < MAX_LENGTH) length += waiting[count++]!.length
    return waiting.splice(0, count)
  }

  function start(): void {
    isScheduled = false
    while (waiting.length && executing < MAX_GROUPS && (!recent || waiting.length >= MIN_MORE)) {
      const execution = execute(nextGroup())
      recent++
      void raceTimeout(execution, MAX_WAIT).then(() => {
        recent--
        start()
      })
      executing++
      void raceTimeout(execution, PATIENCE).then(() => {
        executing--
        start()
      })
    }
  }

  return {
    /** Resolves when the statements are committed. Rejects with the error of a statement, or of the connection. */
    commit(statements: readonly Statement[]): Promise<void> {
      const length = statements.reduce((sum, { args }) => sum + lengthOf(args), 0)
      const member = { ...Promise.withResolvers<void>(), statements, length }
      waiting.push(member)
      if (!isScheduled) setImmediate(start)
      isScheduled = true
      return member.promise
    },
  }
}

const lengthOf = (args: readonly unknown[]): number =>
  args.reduce<number>((sum, arg) => {
    if (typeof arg === 'string') return sum + arg.length
    return ArrayBuffer.isView(arg) ? sum + arg.byteLength : sum
  }, 0)

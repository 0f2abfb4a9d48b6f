import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Db } from '../../src/db/client.ts'
import type { Engine } from '../../src/executions/engine/engine.ts'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { questionOf } from '../support/model-server.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { violations, watchTransitions } from './invariants.ts'
import { type Lab, nextTurn, PLAIN, startLab } from './lab.ts'

const SESSIONS = 3

const which = fc.nat({ max: 30 })
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('execute' as const),
      session: fc.nat({ max: SESSIONS - 1 }),
      onBusy: fc.constantFrom('queue' as const, 'queue' as const, 'reject' as const, 'interrupt' as const),
      /** The tree of an earlier run that this one joins. */
      parent: fc.option(which, { freq: 3 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('cancel' as const), which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('speak' as const), which }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('finish' as const), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('break' as const), which }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('crash' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('drain' as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('wait' as const), turns: fc.integer({ min: 1, max: 30 }) }) },
)
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never

/** A process on the lab's database that can die, and then loses its access to the database. */
function createProcess(lab: Lab): { engine: Engine; die: () => void } {
  let alive = true
  const db: Db = new Proxy(lab.db, {
    get(target, name) {
      if (!alive) throw new Error('This process is dead')
      return Reflect.get(target, name)
    },
  })
  const { settings } = lab.server.service.deps
  const limits = { MAX_RUNNING: 4, MAX_RUNNING_PER_ORGANIZATION: 3, DRAIN_TIMEOUT: 30 }
  const engine = lab.another({ db, settings: { ...settings, ...limits } })
  return {
    engine,
    die() {
      alive = false
      // Its runs and timers end with it.
      engine.drain().catch(() => {})
    },
  }
}

/** The model emits a word at each `speak`, and then ends. */
function puppets({ model }: Lab) {
  const gates = new Map<string, PromiseWithResolvers<void>[]>()
  const gatesOf = (message: string) => {
    const known = gates.get(message) ?? [1, 2].map(() => Promise.withResolvers<void>())
    gates.set(message, known)
    return known
  }
  model.fallback = (request) => {
    const [first, second] = gatesOf(String(questionOf(request)))
    return { tokens: [first!.promise, 'one ', second!.promise, 'two'] }
  }
  return {
    speak: (message: string) => gatesOf(message)[0]!.resolve(),
    finish(message: string) {
      for (const gate of gatesOf(message)) gate.resolve()
    },
    /** A gate that fails breaks the connection. */
    break(message: string) {
      for (const gate of gatesOf(message)) {
        gate.promise.catch(() => {})
        gate.reject(new Error('The model broke'))
      }
    },
  }
}

test('calls, crashes and drains in any order cause only documented transitions', async () => {
  // A dying process may leave a run that it was accepting to the run's lease.
  const lease = onPostgres ? { LEASE_DURATION: '2' } : {}
  await using lab = await startLab({ DRAIN_TIMEOUT: '0.1', ...lease })
  // The lab's own engine takes no part and recovers nothing.
  await lab.engine.drain()
  const transitions = await watchTransitions(lab.db)
  let count = 0

  const check = async (steps: Step[]) => {
    const began = lab.clock.now()
    const model = puppets(lab)
    let process = createProcess(lab)
    await process.engine.start(true)
    const [agent] = await lab.db.agent.findMany()
    const conversations: ExecutionRow[] = []
    const rows: ExecutionRow[] = []
    const pending: Promise<unknown>[] = []
    const chosen = (index: number | null) => (index === null ? null : (rows[index % Math.max(1, rows.length)] ?? null))

    const perform = async (next: Step): Promise<void> => {
      if (next.do === 'execute') {
        const known = conversations[next.session]
        const conversation = known
          ? { spaceId: known.spaceId, chatId: known.chatId, sessionId: known.sessionId }
          : { spaceId: lab.spaceId }
        const message = `message ${count++}`
        const parent = chosen(next.parent)
        const request = {
          ...PLAIN,
          actor: lab.actor,
          agent: agent!,
          message,
          conversation,
          onBusy: next.onBusy,
          parent,
        }
        // The test does not wait, because an interrupt takes as long as the runs before it.
        pending.push(
          process.engine.accept(request).then(
            (row) => {
              conversations[next.session] ??= row
              rows.push(row)
            },
            () => {},
          ),
        )
      } else if (next.do === 'cancel') {
        const row = chosen(next.which)
        if (row) pending.push(process.engine.cancel(await lab.row(row.id), lab.actor).catch(() => {}))
      } else if (next.do === 'speak' || next.do === 'finish' || next.do === 'break') {
        const row = chosen(next.which)
        if (row) model[next.do](row.message)
      } else if (next.do === 'wait') for (let turn = 0; turn < next.turns; turn++) await nextTurn()
      else {
        if (next.do === 'crash') process.die()
        else await process.engine.drain().catch(() => {})
        process = createProcess(lab)
        await process.engine.start(true)
      }
    }

    for (const next of steps) {
      await perform(next)
      await nextTurn()
    }
    await Promise.all(pending)
    // Releases all accepted runs to their ends.
    lab.model.fallback = { tokens: 'Done.' }
    for (const { message } of rows) model.finish(message)
    await lab.idle()
    expect(await transitions()).toEqual([])
    expect(await violations(lab.db, began)).toEqual([])
    for (const { id } of rows) expect((await lab.row(id)).terminalSeq).not.toBeNull()
    await process.engine.drain()
    await expect.poll(() => lab.model.active).toBe(0)
  }

  const property = fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), check)
  await fc.assert(property, { numRuns: Number(process.env.STATES_RUNS ?? (onPostgres ? 20 : 60)), endOnFailure: true })
}, 300_000)

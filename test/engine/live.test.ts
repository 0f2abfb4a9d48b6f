import { expect, test } from 'vitest'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { BEGIN } from '../../src/executions/engine/run/checkpoint.ts'
import { createLive, type LiveDeps } from '../../src/executions/engine/run/live.ts'
import { nextTurn } from './lab.ts'

type Agent = Parameters<Parameters<Parameters<ReturnType<typeof createLive>['claim']>[0]>[0]>[1]

/** Creates the runs of a process, whose attempts end when the functions in `ends` are called. */
function createRuns() {
  const ends: (() => void)[] = []
  const live = createLive({
    eventLog: { open: () => ({}) },
    stopped: new AbortController().signal,
    onLeft: () => {},
    attempt: () => new Promise((resolve) => ends.push(() => resolve(null))),
  } as unknown as LiveDeps)
  return { live, ends }
}

test('a late end of a run’s earlier attempt leaves the current attempt alone', async () => {
  const { live, ends } = createRuns()
  const begin = (attempt: number) =>
    live.claim(async (launch) => launch({ id: 'run', attempt } as ExecutionRow, {} as Agent, BEGIN))
  await begin(1)
  await begin(2)
  ends[0]?.()
  await nextTurn()
  expect(live.heldRows()).toMatchObject([{ attempt: 2 }])
  ends[1]?.()
  await nextTurn()
  expect(live.ids()).toEqual([])
})

test('a drain waits without polling for claims, and for the runs that they start', async () => {
  const { live, ends } = createRuns()
  const claims = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const claiming = claims.map(({ promise }, index) =>
    live.claim(async (launch) => {
      await promise
      if (index) launch({ id: 'run', attempt: 1 } as ExecutionRow, {} as Agent, BEGIN)
    }),
  )
  const immediates = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Immediate').length
  const before = immediates()
  let isQuiet = false
  const quiet = live.quiet(new AbortController().signal).then(() => (isQuiet = true))
  await nextTurn()
  expect(immediates()).toBe(before)
  for (const { resolve } of claims) resolve()
  await Promise.all(claiming)
  await nextTurn()
  expect(isQuiet).toBe(false)
  ends[0]?.()
  await quiet
})

test('a drain ends when its signal aborts, although a claim does not', async () => {
  const { live } = createRuns()
  const claim = Promise.withResolvers<void>()
  const claiming = live.claim(() => claim.promise)
  const patience = new AbortController()
  const quiet = live.quiet(patience.signal)
  patience.abort()
  await quiet
  claim.resolve()
  await claiming
})

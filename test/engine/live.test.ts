import { expect, test } from 'vitest'
import type { ExecutionRow } from '../../src/executions/engine/events/events.ts'
import { BEGIN } from '../../src/executions/engine/run/checkpoint.ts'
import { createLive, type LiveDeps } from '../../src/executions/engine/run/live.ts'
import { nextTurn } from './lab.ts'

test('a late end of a run’s earlier attempt leaves the current attempt alone', async () => {
  const ends: (() => void)[] = []
  const live = createLive({
    eventLog: { open: () => ({}) },
    stopped: new AbortController().signal,
    onLeft: () => {},
    attempt: () => new Promise((resolve) => ends.push(() => resolve(null))),
  } as unknown as LiveDeps)
  const begin = (attempt: number) =>
    live.claim(async (launch) =>
      launch({ id: 'run', attempt } as ExecutionRow, {} as Parameters<typeof launch>[1], BEGIN),
    )
  await begin(1)
  await begin(2)
  ends[0]?.()
  await nextTurn()
  expect(live.heldRows()).toMatchObject([{ attempt: 2 }])
  ends[1]?.()
  await nextTurn()
  expect(live.ids()).toEqual([])
})

import { expect, it } from 'vitest'
import { newSortableId, newTimedId, timedIdsSince } from '../src/lib/id.ts'

it('sortable ids are ordered by time, and as hard to guess as any', () => {
  const times = [0, 1, 1_750_000_000_123, 1_750_000_000_124, Date.UTC(2059, 0), Date.UTC(2060, 0), Date.UTC(5000, 0)]
  const ids = times.map((time) => newSortableId(new Date(time)))
  expect(ids.toSorted()).toEqual(ids)
  for (const id of ids) expect(id).toMatch(/^[0-9a-z]{9}[0-9A-Za-z]{22}$/)
  const now = new Date()
  expect(new Set(Array.from({ length: 1000 }, () => newSortableId(now).slice(9))).size).toBe(1000)
})

it('the ids of runs since a moment are distinguishable from earlier ones', () => {
  const moment = 1_750_000_000_000
  const id = (time: number) => newTimedId('exec', new Date(time))
  const isOlder = (time: number, than: number) => id(time) < timedIdsSince('exec', new Date(than))
  for (const before of [1, 1_000, 365 * 24 * 3_600_000]) {
    expect(isOlder(moment - before, moment)).toBe(true)
    expect(isOlder(moment, moment - before)).toBe(false)
  }
  expect(isOlder(moment, moment)).toBe(false)
  // An operator who keeps events for decades looks for runs before the first one.
  for (const long of [999_999_999_999, 0, -1]) expect(isOlder(moment, long)).toBe(false)
})

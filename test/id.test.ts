import { expect, it } from 'vitest'
import { newSortableId } from '../src/lib/id.ts'

it('sortable ids are in the order of their times, and as hard to guess as any', () => {
  const times = [0, 1, 1_750_000_000_123, 1_750_000_000_124, Date.UTC(2059, 0), Date.UTC(2060, 0), Date.UTC(5000, 0)]
  const ids = times.map((time) => newSortableId(new Date(time)))
  expect(ids.toSorted()).toEqual(ids)
  for (const id of ids) expect(id).toMatch(/^[0-9a-z]{9}[0-9A-Za-z]{22}$/)
  const now = new Date()
  expect(new Set(Array.from({ length: 1000 }, () => newSortableId(now).slice(9))).size).toBe(1000)
})

import { expect, test } from 'vitest'
import { changedFields } from '../../src/console/lib/changes.ts'

test('a form saves only the fields that the person has changed', () => {
  const first = { title: 'One', tags: ['a'], schedule: { type: 'cron', value: '0 8 * * *' } }
  expect(changedFields(first, structuredClone(first))).toEqual({})
  expect(changedFields(first, { ...first, title: 'Two', tags: [] })).toEqual({ title: 'Two', tags: [] })
  const schedule = { ...first.schedule, value: '0 9 * * *' }
  expect(changedFields(first, { ...first, schedule })).toEqual({ schedule })
})

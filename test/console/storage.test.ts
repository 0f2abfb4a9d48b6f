import { expect, onTestFinished, test, vi } from 'vitest'
import { readStored, readStoredList, store } from '../../src/console/lib/storage.ts'

test('a browser that refuses its storage forgets, and the page works', () => {
  onTestFinished(() => void vi.unstubAllGlobals())
  const refuse = () => {
    throw new Error('Access is denied for this document')
  }
  vi.stubGlobal('window', Object.defineProperty({}, 'localStorage', { get: refuse }))
  store('localStorage', 'a', 'text')
  store('localStorage', 'a', null)
  expect(readStored('localStorage', 'a')).toBeNull()
})

test.each([
  [null, []],
  ['', []],
  ['{"', []],
  ['null', []],
  ['{"0": "a"}', []],
  ['["a", 5, null, "b"]', ['a', 'b']],
])('a stored list %j has the items %j', (text, items) => {
  onTestFinished(() => void vi.unstubAllGlobals())
  vi.stubGlobal('window', { sessionStorage: { getItem: () => text } })
  expect(readStoredList('sessionStorage', 'a', (value) => typeof value === 'string')).toEqual(items)
})

import { expect, onTestFinished, test, vi } from 'vitest'
import { clearTab, readStored, readStoredList, store } from '../../src/console/lib/storage.ts'

const refuse = () => {
  throw new Error('Access is denied for this document')
}

test.each([
  ['refuses its storage', Object.defineProperty({}, 'sessionStorage', { get: refuse })],
  ['has a full storage', { sessionStorage: { getItem: () => 'an earlier text', setItem: refuse, removeItem: refuse } }],
])('a page has its texts until a reload in a browser that %s', (_, window) => {
  onTestFinished(() => void vi.unstubAllGlobals())
  onTestFinished(clearTab)
  vi.stubGlobal('window', window)
  expect(store('sessionStorage', 'a', 'text')).toBe(false)
  expect(readStored('sessionStorage', 'a')).toBe('text')
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

import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createRegistry } from '../src/lib/registry.ts'

const action = fc.record({ key: fc.nat(9), value: fc.nat(), isDelete: fc.boolean() })

test('A registry has the same entries as a Map after any changes', () => {
  fc.assert(
    fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
      const registry = createRegistry<number, number>()
      const map = new Map<number, number>()
      for (const { key, value, isDelete } of actions) {
        if (isDelete) expect(registry.delete(key)).toBe(map.delete(key))
        else {
          registry.set(key, value)
          map.set(key, value)
        }
        expect(registry.size).toBe(map.size)
        for (let each = 0; each < 10; each++) {
          expect(registry.has(each)).toBe(map.has(each))
          expect(registry.get(each)).toBe(map.get(each))
        }
      }
      expect(registry.values().sort()).toEqual([...map.values()].sort())
    }),
  )
})

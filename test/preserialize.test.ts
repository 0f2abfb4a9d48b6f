import fc from 'fast-check'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { acceptPreserialized, preserialize, toJson } from '../src/lib/preserialize.ts'

const Book = acceptPreserialized(
  z.object({ title: z.string(), tags: z.array(z.string()), at: z.object({ shelf: z.int().nullable() }) }),
)
const Other = z.object({ title: z.string() })
const Shelf = z.object({ success: z.literal(true).default(true), first: Book, books: z.array(Book) })

const book = fc.record({ title: fc.string(), tags: fc.array(fc.string()), at: fc.record({ shelf: fc.nat() }) })
const odyssey = { title: 'Odyssey', tags: ['old'], at: { shelf: 3 } }

test('a schema accepts its constant as the same object without a check, and checks other values', () => {
  const known = preserialize(Book, odyssey)
  const shelf = Shelf.parse({ first: known, books: [known, odyssey] } as z.input<typeof Shelf>)
  expect(shelf).toEqual({ success: true, first: odyssey, books: [odyssey, odyssey] })
  expect([shelf.first, shelf.books[0], shelf.books[1]].map((each) => each === known)).toEqual([true, true, false])
  expect(Shelf.safeParse({ first: known, books: [{ ...known, title: 1 }] }).success).toBe(false)
  expect(Book.safeParse({ ...known, tags: null }).success).toBe(false)
})

test('a constant holds only the properties of its schema', () => {
  const known = preserialize(Book, { ...odyssey, secret: 'hidden' } as typeof odyssey)
  expect(Object.keys(known)).toEqual(['title', 'tags', 'at'])
  expect(toJson(Shelf.parse({ first: known, books: [] }))).not.toContain('hidden')
})

test('a schema does not accept the constant of another one', () => {
  const Stricter = acceptPreserialized(Book.extend({ title: z.string().max(3) }))
  const known = preserialize(Book, odyssey)
  expect(Stricter.safeParse(known).success).toBe(false)
  expect(Other.parse(known)).toEqual({ title: 'Odyssey' })
})

test('a value that its schema refuses becomes no constant, and stays refused', () => {
  const wrong = { ...odyssey, title: 1 } as unknown as typeof odyssey
  expect(preserialize(Book, wrong)).toBe(wrong)
  expect(Book.safeParse(wrong).success).toBe(false)
})

test('a constant is frozen with everything in it', () => {
  const known = preserialize(Book, odyssey)
  expect(() => known.tags.push('new')).toThrow(TypeError)
  expect(() => Object.assign(known.at, { shelf: 4 })).toThrow(TypeError)
  expect(() => Object.assign(known, { title: 'Iliad' })).toThrow(TypeError)
  expect(odyssey.tags).toEqual(['old'])
})

test('toJson writes the same as JSON.stringify, with and without constants', () => {
  const member = fc.oneof(
    book.map((each) => preserialize(Book, each)),
    book,
    fc.constant(undefined),
    fc.anything({ withDate: true }),
  )
  const value = fc.oneof(
    book.map((each) => preserialize(Book, each)),
    fc.dictionary(fc.string(), fc.oneof(member, fc.array(member))),
  )
  const property = fc.property(value, (each) => {
    expect(toJson(each)).toBe(JSON.stringify(each))
  })
  fc.assert(property, { numRuns: 1_000 })
})

import fc from 'fast-check'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { parseOutput, preserialize, toJson } from '../src/lib/preserialize.ts'

const Book = z.object({ title: z.string(), tags: z.array(z.string()), at: z.object({ shelf: z.int().nullable() }) })
const Other = z.object({ title: z.string() })
const Shelf = z.object({ success: z.literal(true).default(true), first: Book, books: z.array(Book) })

const book = fc.record({ title: fc.string(), tags: fc.array(fc.string()), at: fc.record({ shelf: fc.nat() }) })
const odyssey = { title: 'Odyssey', tags: ['old'], at: { shelf: 3 } }

const shelfOf = (output: object) => parseOutput(Shelf, output) as z.output<typeof Shelf>

test('an output keeps constants of its fields and lists as the same objects', () => {
  const known = preserialize(Book, odyssey)
  const shelf = shelfOf({ first: known, books: [known, known] })
  expect(shelf).toEqual({ success: true, first: odyssey, books: [odyssey, odyssey] })
  expect([shelf.first, ...shelf.books].every((each) => each === known)).toBe(true)
})

test('an output with constants has its other values checked', () => {
  const known = preserialize(Book, odyssey)
  const more = { ...odyssey, secret: 'hidden' }
  expect(shelfOf({ first: known, books: [known, more], page: 2 })).toEqual({
    success: true,
    first: odyssey,
    books: [odyssey, odyssey],
  })
  expect(() => shelfOf({ first: known, books: [{ ...known, title: 1 }] })).toThrow(z.ZodError)
  expect(() => shelfOf({ first: { ...known, tags: null }, books: [known] })).toThrow(z.ZodError)
  expect(() => shelfOf({ first: known })).toThrow(z.ZodError)
})

test('a constant holds only the properties of its schema', () => {
  const known = preserialize(Book, { ...odyssey, secret: 'hidden' } as typeof odyssey)
  expect(Object.keys(known)).toEqual(['title', 'tags', 'at'])
  expect(toJson(shelfOf({ first: known, books: [] }))).not.toContain('hidden')
})

test('an output does not accept the constant of another schema', () => {
  const known = preserialize(Book, odyssey)
  expect(() => parseOutput(z.object({ first: Book.extend({ title: z.string().max(3) }) }), { first: known })).toThrow(
    z.ZodError,
  )
  expect(parseOutput(z.object({ first: Other, all: z.array(Other) }), { first: known, all: [known] })).toEqual({
    first: { title: 'Odyssey' },
    all: [{ title: 'Odyssey' }],
  })
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

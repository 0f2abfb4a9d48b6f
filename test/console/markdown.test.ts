import { describe, expect, it } from 'vitest'
import { toBlocks, toHtml } from '../../src/console/lib/markdown.ts'

describe('a text of a hostile model or tool', () => {
  it.each(['> ', '>', '- > ', '1. ', '1) ', '  - * + '])('with lists or quotes in each other is plain: %j', (mark) => {
    expect(toBlocks(`A\n${mark.repeat(40_000)}B`)).toBeNull()
  })

  it.each(['!', '__*a', '_a_', 'a*', 'a_b_', '$$\n', '[a'])('that takes long to parse is plain: %j', (part) => {
    expect(toBlocks(part.repeat(40_000 / part.length))).toBeNull()
  })
})

describe('Markdown stays', () => {
  it.each([
    ['of many paragraphs', 'A *b* __c__ `d` [e](https://example.com/f_g_h), i_j_k! And (so) on.\n\n', 2_500],
    ['of a long list', '- A *b* __c__ `d` [e](https://example.com/f_g_h)\n', 3_500],
    ['of a long table', '|a|b|\n|-|-|\n|_c_|**d**|\n', 1],
    ['with long lines between parts', `A\n\n${'-'.repeat(200)}\n\n${'* '.repeat(40)}\n\n`, 500],
    ['of code', '```\n* * * * * * [ [ [ _ _ _\n```\n\n', 5_000],
    ['of a paragraph of 20,000 characters', 'A *b* and [c](https://example.com/d) with some more words. ', 330],
  ])('%s', (_, part, times) => {
    expect(toBlocks(part.repeat(times))).not.toBeNull()
  })

  it('in lists and quotes of ten levels, and as HTML', () => {
    const [block] = toBlocks(`${'> - '.repeat(5)}*A*`)!
    expect(toHtml(block!)).toContain('<em>A</em>')
  })
})

import { Marked, type Token } from 'marked'
import { texts } from '../texts.ts'
import { formulas } from './formulas.ts'

// Markdown of models, tools and other people as blocks. It is not sanitised yet.

/**
 * Maximum length of Markdown (characters). Longer texts are shown as plain text, because parsing would block the page.
 */
const MAX_MARKDOWN = 200_000

/** A line with more nested quotes and lists than a person or a model writes. */
const DEEP = /^[ \t]*(?:(?:>|(?:[-+*]|\d{1,9}[.)])[ \t])[ \t]*){50}/m

/**
 * Maximum number of characters that are read for the parts of a text: each part is searched in the whole rest of its
 * paragraph. Ordinary texts of the maximum length need a tenth.
 */
const MAX_READ = 30_000_000

/** Thrown for a text that is no ordinary Markdown. */
class TooComplex extends Error {
  override name = 'TooComplex'
}

let read = 0

function count(characters: number): undefined {
  read += characters
  if (read > MAX_READ) throw new TooComplex('The Markdown is too complex')
}

const escaped = (text: string) => text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`)

const marked = new Marked(
  formulas,
  {
    extensions: [
      { name: 'inlineLimit', level: 'inline', tokenizer: (rest) => count(rest.length) },
      {
        name: 'blockLimit',
        level: 'block',
        // Each beginning of a formula divides a paragraph, whose rest is then read again.
        tokenizer: (rest, tokens) =>
          tokens.at(-1)?.type === 'paragraph' ? count(`${rest}\n\n`.indexOf('\n\n')) : undefined,
      },
    ],
  },
  {
    gfm: true,
    renderer: {
      // An image becomes a link, because loading it would reveal the reader to its server.
      image: ({ href, text }) =>
        `<a href="${escaped(href)}">${escaped(text || href)}</a> <small>(${texts.picture})</small>`,
      // The page around the text has the only heading of the first level.
      heading({ tokens, depth }) {
        const name = `h${Math.min(depth + 1, 6)}`
        return `<${name}>${this.parser.parseInline(tokens)}</${name}>`
      },
      // An input would need a label.
      checkbox: ({ checked }) => `<small>${checked ? '☑' : '☐'}</small> `,
      // Raw HTML is shown as text, apart from the line breaks of tables.
      html: ({ text }) => escaped(text).replace(/&#60;br ?\/?&#62;/gi, '<br>'),
    },
  },
)

/** Returns the blocks of a text; null if it is too long or too complex, so that it is shown as plain text. */
export function toBlocks(text: string): Token[] | null {
  if (text.length > MAX_MARKDOWN || DEEP.test(text)) return null
  read = 0
  try {
    return marked.lexer(text).filter(({ type }) => type !== 'space')
  } catch {
    // Too many characters were read, or parts are nested deeper than the stack of calls allows.
    return null
  }
}

/** Returns a block as HTML; null if its parts are nested too deep. */
export function toHtml(token: Token): string | null {
  try {
    return marked.parser([token])
  } catch {
    return null
  }
}

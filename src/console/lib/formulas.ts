import type { MarkedExtension, Token } from 'marked'

// Formulas of TeX in the Markdown of a model. Markdown takes \( and \{ for escaped letters and a line with + for a list,
// so the formula would lose its meaning. It stays as the model wrote it, in the form of code.

/** The signs without which a text between the marks of a formula may be any text, such as prices and \[1\]. */
const HAS_TEX = /[\\^_{}]/

/** A formula on lines of its own. TeX allows no empty line in it. The end of each beginning is searched so far. */
const BLOCK =
  / {0,3}(?:\$\$((?:(?!\n[ \t]*\n)[^$]){1,2000})\$\$|\\\[((?:(?!\n[ \t]*\n|\\\])[\s\S]){1,2000})\\\])[ \t]*(?:\n+|$)/
const FIRST = new RegExp(`^${BLOCK.source}`)
const LATER = new RegExp(`\n${BLOCK.source}`)

/** A formula in a line: \(…\), $$…$$, or $…$ between letters that no price and no variable of a shell has there. */
const INLINE = /^(?:\\\(([\s\S]{1,1000}?)\\\)|\$\$([^$]+)\$\$|\$(?![\s$])([^$\n]*[^\s$\\])\$(?![\p{L}\d]))/u

/** Maximum distance at which a formula ends the text before it (characters), because each text is searched so far. */
const NEAR = 2_000

const reading = (form: RegExp, toToken: (raw: string, formula: string) => Token) => (text: string) => {
  const [raw, ...formulas] = form.exec(text) ?? []
  const formula = formulas.find((each) => each !== undefined)
  return raw && formula && HAS_TEX.test(formula) ? toToken(raw, formula.trim()) : undefined
}

export const formulas: MarkedExtension = {
  extensions: [
    {
      name: 'formulaBlock',
      level: 'block',
      start: (text) => LATER.exec(text.slice(0, NEAR))?.index,
      tokenizer: reading(FIRST, (raw, text) => ({ type: 'code', raw, text, lang: 'latex' })),
    },
    {
      name: 'formula',
      level: 'inline',
      start: (text) => /\$|\\\(/.exec(text.slice(0, NEAR))?.index,
      tokenizer: reading(INLINE, (raw, text) => ({ type: 'codespan', raw, text })),
    },
  ],
}

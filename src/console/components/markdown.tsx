import DOMPurify from 'dompurify'
import { Marked, type Token } from 'marked'
import { memo, useMemo } from 'react'
import { formulas } from '../lib/formulas.ts'
import { texts } from '../texts.ts'
import { Code } from './code.tsx'

// Texts of models and tools (contract-2.md section 7.8): sanitised, without loading anything from other origins.

/**
 * Maximum length of Markdown (characters). Longer texts are shown as plain text, because parsing would block the page.
 */
const MAX_MARKDOWN = 200_000

const escaped = (text: string) => text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`)

const marked = new Marked(formulas, {
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
})

const purify = DOMPurify(window)
purify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName !== 'A') return
  node.setAttribute('target', '_blank')
  node.setAttribute('rel', 'noopener noreferrer nofollow')
})

const ALLOWED = {
  ALLOWED_TAGS: [
    ...['p', 'br', 'hr', 'strong', 'em', 'del', 's', 'code', 'pre', 'blockquote', 'a', 'ul', 'ol', 'li', 'small'],
    ...['h2', 'h3', 'h4', 'h5', 'h6', 'table', 'thead', 'tbody', 'tr', 'th', 'td'],
  ],
  ALLOWED_ATTR: ['href', 'align', 'start', 'target', 'rel'],
  // These hold no address.
  ADD_URI_SAFE_ATTR: ['align', 'start'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
}

/** One block of a text. While an answer grows, only its last block is rendered again. */
const Block = memo(
  function Block({ token }: { token: Token }) {
    if (token.type === 'code') return <Code text={token.text} language={token.lang ?? ''} />
    const __html = purify.sanitize(marked.parser([token]), ALLOWED)
    // A wide table scrolls, also by the keyboard.
    const scrolling = token.type === 'table' && ({ tabIndex: 0, role: 'group', 'aria-label': texts.table } as const)
    // biome-ignore lint/security/noDangerouslySetInnerHtml: DOMPurify has sanitised it
    return <div dir="auto" {...scrolling} dangerouslySetInnerHTML={{ __html }} />
  },
  (before, after) => before.token.raw === after.token.raw && before.token.type === after.token.type,
)

const toBlocks = (text: string): Token[] => marked.lexer(text).filter(({ type }) => type !== 'space')

/** Renders Markdown of a model or a tool. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const isLong = text.length > MAX_MARKDOWN
  const blocks = useMemo(() => (isLong ? [] : toBlocks(text)), [text, isLong])
  if (isLong) return <Code text={text} isWrapped />
  return (
    <div className="prose">
      {blocks.map((token, index) => (
        <Block
          // biome-ignore lint/suspicious/noArrayIndexKey: blocks are only ever added at the end
          key={index}
          token={token}
        />
      ))}
    </div>
  )
})

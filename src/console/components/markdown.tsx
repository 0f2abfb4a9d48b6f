import DOMPurify from 'dompurify'
import type { Token } from 'marked'
import { memo, useMemo } from 'react'
import { toBlocks, toHtml } from '../lib/markdown.ts'
import { texts } from '../texts.ts'
import { Code } from './code.tsx'

// Texts of models and tools (contract-2.md section 7.8): sanitised, without loading anything from other origins.

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
    const html = toHtml(token)
    if (html === null) return <Code text={token.raw} isWrapped />
    const __html = purify.sanitize(html, ALLOWED)
    // A wide table scrolls, also by the keyboard.
    const scrolling = token.type === 'table' && ({ tabIndex: 0, role: 'group', 'aria-label': texts.table } as const)
    // biome-ignore lint/security/noDangerouslySetInnerHtml: DOMPurify has sanitised it
    return <div dir="auto" {...scrolling} dangerouslySetInnerHTML={{ __html }} />
  },
  (before, after) => before.token.raw === after.token.raw && before.token.type === after.token.type,
)

/** Renders Markdown of a model or a tool. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => toBlocks(text), [text])
  if (!blocks) return <Code text={text} isWrapped />
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

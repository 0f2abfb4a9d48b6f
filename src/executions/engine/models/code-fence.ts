/**
 * Maximum length of the line that opens a code fence, and of the beginning and of the end of a text that is withheld
 * (characters).
 */
const MAX_OPENING = 40
const MAX_WITHHELD = 200

/** Removes the Markdown code fence around a text that arrives in fragments. */
export type FenceFilter = {
  /** Returns the text that can be passed on now. */
  feed(text: string): string
  /** Returns the withheld rest at the end of the text. */
  end(): string
}

/**
 * Creates a filter for models that put JSON into a code fence (contract-2.md section 2.5). Text without a fence at its
 * beginning passes unchanged. Backticks occur in JSON only inside strings, so a withheld end is never a part of it.
 */
export function createFenceFilter(): FenceFilter {
  let head: string | null = ''
  let isFenced = false
  let tail = ''

  /** Returns the text behind the opening fence, or null if more of it must arrive. */
  function open(text: string): string | null {
    const begin = text.trimStart()
    if (begin.length < 3 && '```'.startsWith(begin)) return text.length > MAX_WITHHELD ? text : null
    if (!begin.startsWith('```')) return text
    const end = begin.indexOf('\n')
    if (end === -1) return begin.length > MAX_OPENING ? text : null
    isFenced = true
    return begin.slice(end + 1)
  }

  return {
    feed(text) {
      let rest = text
      if (head !== null) {
        head += text
        const opened = open(head)
        if (opened === null) return ''
        head = null
        rest = opened
      }
      if (!isFenced) return rest
      const all = tail + rest
      const end = withoutFence(all).length
      tail = all.length - end > MAX_WITHHELD ? '' : all.slice(end)
      return tail ? all.slice(0, end) : all
    },
    end() {
      const rest = head ?? (tail.trim() === '```' ? '' : tail)
      head = ''
      isFenced = false
      tail = ''
      return rest
    },
  }
}

/** Returns a text without white space and at most three backticks at its end. */
const withoutFence = (text: string): string => {
  const trimmed = text.trimEnd()
  let length = trimmed.length
  while (trimmed.length - length < 3 && trimmed[length - 1] === '`') length--
  return trimmed.slice(0, length).trimEnd()
}

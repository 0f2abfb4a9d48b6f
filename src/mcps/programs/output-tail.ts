import type { Clean } from '../client/content.ts'

// The last lines of a program's output, which explain its failure.

/**
 * Number of last lines that explain a failure, and of first ones if the program failed at its start; the maximum length
 * of each and of all (characters).
 */
const TAIL = { lines: 20, first: 3, line: 500, all: 2000 }

/** A line that names a place of the code in a stack of Python or JavaScript, also in the frame of a group of errors. */
const PLACE = /^[\s|]*(?:File ".+", line \d|at \S)/
/** Indentation of a line, with the frame of a group of errors. */
const INDENT = /^[\s|]*/

/**
 * Keeps the beginnings of the last lines of a text that arrives in pieces. Leaves out the places of a stack, with their
 * lines of code: a person reads the start of the output, and Python has its error at the end.
 */
export function createTail(clean: Clean) {
  const lines: string[] = []
  const first: string[] = []
  let isCut = false
  let last = ''
  /** Indentation of the place whose lines of code follow. */
  let place = Number.POSITIVE_INFINITY
  // Twice the length that a reason quotes, so that `clean` finds a secret at the end.
  const begin = (line: string) => line.slice(0, 2 * TAIL.line + 1)
  function end(line: string) {
    if (!line.trim()) return
    const indent = INDENT.exec(line)?.[0].length ?? 0
    if (PLACE.test(line)) place = indent
    else if (indent <= place) {
      place = Number.POSITIVE_INFINITY
      lines.push(line)
      if (first.length < TAIL.first) first.push(line)
    }
  }
  const cleaned = (some: readonly string[]) =>
    some
      .map((line) => clean(line, TAIL.line).trim())
      .filter(Boolean)
      .join('\n')
  return {
    add(text: string) {
      const [rest = '', ...others] = text.split('\n')
      last = begin(last + begin(rest))
      for (const line of others) {
        end(last)
        last = begin(line)
      }
      if (lines.length <= TAIL.lines) return
      lines.splice(0, lines.length - TAIL.lines)
      isCut = true
    },
    /** `withStart`: whether the first lines matter, as an error before the usage of the program. */
    read(withStart: boolean): string {
      const all = cleaned([...lines, last])
      const start = withStart && (isCut || all.length > TAIL.all) ? `${cleaned(first)}\n…\n` : ''
      return start + all.slice(start.length - TAIL.all)
    },
  }
}

/** A line of a comparison: on the left, on the right, or on both sides. */
export type DiffLine = { left: string | null; right: string | null }

/** Maximum product of the lines of both sides. Beyond it lines are paired without a search. */
const MAX_CELLS = 4_000_000

/**
 * Compares two texts line by line. Lines of the longest common subsequence are paired; the others stand beside each
 * other.
 */
export function diffLines(before: string, after: string): DiffLine[] {
  const [a, b] = [before.split('\n'), after.split('\n')]
  if (a.length * b.length > MAX_CELLS) return beside(a, b)
  const common = commonLengths(a, b)
  const lines: DiffLine[] = []
  let [left, right]: [string[], string[]] = [[], []]
  const flush = () => {
    lines.push(...beside(left, right))
    left = []
    right = []
  }
  let [i, j] = [0, 0]
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      flush()
      lines.push({ left: a[i++] ?? '', right: b[j++] ?? '' })
    } else if (common(i + 1, j) >= common(i, j + 1)) left.push(a[i++] ?? '')
    else right.push(b[j++] ?? '')
  }
  left.push(...a.slice(i))
  right.push(...b.slice(j))
  flush()
  return lines
}

/** Puts lines beside each other by their position. */
const beside = (left: readonly string[], right: readonly string[]): DiffLine[] =>
  Array.from({ length: Math.max(left.length, right.length) }, (_, index) => ({
    left: left[index] ?? null,
    right: right[index] ?? null,
  }))

/** Returns a function for the length of the longest common subsequence of two lists from two indexes on. */
function commonLengths(a: readonly string[], b: readonly string[]): (i: number, j: number) => number {
  const width = b.length + 1
  const lengths = new Uint32Array((a.length + 1) * width)
  const at = (i: number, j: number) => lengths[i * width + j] ?? 0
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1))
    }
  }
  return at
}

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
  const width = b.length + 1
  if (a.length * b.length > MAX_CELLS) {
    return Array.from({ length: Math.max(a.length, b.length) }, (_, index) => ({
      left: a[index] ?? null,
      right: b[index] ?? null,
    }))
  }
  const common = new Uint32Array((a.length + 1) * width)
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] =
        a[i] === b[j]
          ? (common[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(common[(i + 1) * width + j] ?? 0, common[i * width + j + 1] ?? 0)
    }
  }
  const lines: DiffLine[] = []
  let [left, right]: [string[], string[]] = [[], []]
  const flush = () => {
    for (let index = 0; index < Math.max(left.length, right.length); index++) {
      lines.push({ left: left[index] ?? null, right: right[index] ?? null })
    }
    left = []
    right = []
  }
  let [i, j] = [0, 0]
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      flush()
      lines.push({ left: a[i] ?? '', right: b[j] ?? '' })
      i += 1
      j += 1
    } else if (
      j >= b.length ||
      (i < a.length && (common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0))
    ) {
      left.push(a[i] ?? '')
      i += 1
    } else {
      right.push(b[j] ?? '')
      j += 1
    }
  }
  flush()
  return lines
}

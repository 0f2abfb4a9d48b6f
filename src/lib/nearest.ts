/**
 * Returns the word closest to a misspelt one by inserted, deleted, replaced or swapped letters, at most a third of its
 * letters. Returns null if no word is that close.
 */
export function nearest(misspelt: string, words: Iterable<string>): string | null {
  if (misspelt.length > MAX_LENGTH) return null
  let [found, least]: [string | null, number] = [null, Math.max(1, Math.floor(misspelt.length / 3)) + 1]
  for (const word of words) {
    const distance = distanceOf(misspelt.toLowerCase(), word.toLowerCase())
    if (distance < least) [found, least] = [word, distance]
  }
  return found
}

/** Maximum length of a name that is compared (characters). */
const MAX_LENGTH = 50

/** Returns the Damerau-Levenshtein distance, with adjacent letters swapped at most once. */
export function distanceOf(a: string, b: string): number {
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1]
      row[j] = Math.min(row[j - 1]! + 1, last[j]! + 1, last[j - 1]! + (isSame ? 0 : 1))
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      if (isSwapped) row[j] = Math.min(row[j]!, before[j - 2]! + 1)
    }
    before = last
    last = row
  }
  return last[b.length]!
}

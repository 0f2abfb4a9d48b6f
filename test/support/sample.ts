import { createHash } from 'node:crypto'

/**
 * Returns rows of a matrix in which each feature occurs at least once, or all rows with NIGHTLY=1. A feature is what a
 * row shares with others, such as its route together with its role. `SEED` selects other rows; further rows leave the
 * choice of the others mostly as it is.
 */
export function sample<Row>(rows: readonly Row[], featuresOf: (row: Row) => readonly string[]): Row[] {
  if (process.env.NIGHTLY === '1') return [...rows]
  const seen = new Set<string>()
  const rank = (text: string) =>
    createHash('sha1')
      .update(`${process.env.SEED ?? 1} ${text}`)
      .digest('hex')
  return rows
    .map((row) => {
      const features = featuresOf(row)
      return { row, features, rank: rank(features.join()) }
    })
    .sort((one, other) => (one.rank < other.rank ? -1 : 1))
    .flatMap(({ row, features }) => {
      const isNew = features.some((feature) => !seen.has(feature))
      for (const feature of features) seen.add(feature)
      return isNew ? row : []
    })
}

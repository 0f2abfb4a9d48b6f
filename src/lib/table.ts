/** Replaces control characters, which could move the cursor or change colors, with `?` for a terminal. */
const printable = (text: string): string => text.replace(/[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]/g, '?')

/** Formats rows as columns of equal width. The first row contains the headings. */
export function table(rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(printable))
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)))
  return cells
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/** Returns the day of a time for a table, or `never`. */
export const day = (date: Date | null): string => date?.toISOString().slice(0, 10) ?? 'never'

import { isFilter, listOf, quote, type Table, UNSUPPORTED } from './tables.ts'

/** Returns the columns of an order, and its SQL; both are empty without an order. */
export function orderOf(table: Table, orderBy: unknown): { names: readonly string[]; text: string } {
  const names: string[] = []
  const columns: string[] = []
  for (const term of orderBy === undefined ? [] : listOf(orderBy)) {
    if (!isFilter(term) || Object.keys(term).length !== 1) throw UNSUPPORTED
    for (const name in term) {
      const direction = term[name]
      if (!table.columns.has(name) || (direction !== 'asc' && direction !== 'desc')) throw UNSUPPORTED
      names.push(name)
      columns.push(`${quote(name)} ${direction === 'asc' ? 'ASC' : 'DESC'}`)
    }
  }
  return { names, text: columns.length ? ` ORDER BY ${columns.join(', ')}` : '' }
}

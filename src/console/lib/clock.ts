/** Difference of the server's clock to that of the browser (ms). The clock of a computer may be wrong by hours. */
let difference = 0

/** Reads the clock of the server in an answer that has just arrived. */
export function setClock({ headers }: Response): void {
  const date = Date.parse(headers.get('Date') ?? '')
  // The header has whole seconds.
  if (!Number.isNaN(date)) difference = date + 500 - Date.now()
}

/** Returns the time of the server, whose moments a page shows. */
export const now = (): number => Date.now() + difference

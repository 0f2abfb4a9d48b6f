/**
 * The storage of the browser, for this tab or for all. If the browser refuses it, or has no space left, the page has
 * the texts until it is closed or reloaded.
 */
type Kind = 'localStorage' | 'sessionStorage'

/** Texts that the browser did not store, such as one that is longer than its whole storage. A reload loses them. */
const unstored = new Map<string, string>()
const nameOf = (kind: Kind, key: string) => `${kind} ${key}`

export function readStored(kind: Kind, key: string): string | null {
  const text = unstored.get(nameOf(kind, key))
  if (text !== undefined) return text
  try {
    return window[kind].getItem(key)
  } catch {
    return null
  }
}

/** Reads a stored list. Leaves out items of another form, and text that is not a list. */
export function readStoredList<Item>(kind: Kind, key: string, isItem: (value: unknown) => value is Item): Item[] {
  try {
    const found: unknown = JSON.parse(readStored(kind, key) ?? '[]')
    return Array.isArray(found) ? found.filter(isItem) : []
  } catch {
    return []
  }
}

/** Stores a text, or removes it if it is null. Returns whether that survives a reload. */
export function store(kind: Kind, key: string, text: string | null): boolean {
  unstored.delete(nameOf(kind, key))
  try {
    if (text === null) window[kind].removeItem(key)
    else window[kind].setItem(key, text)
    return true
  } catch {
    if (text !== null) unstored.set(nameOf(kind, key), text)
    return false
  }
}

/** Removes all texts of this tab. */
export function clearTab(): void {
  unstored.clear()
  try {
    window.sessionStorage.clear()
  } catch {
    // Nothing is stored.
  }
}

/**
 * The storage of the browser, for this tab or for all. A browser that refuses it, or has no space left, forgets, and
 * the page still works.
 */
type Kind = 'localStorage' | 'sessionStorage'

export function readStored(kind: Kind, key: string): string | null {
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

/** Stores a text, or removes it if it is null. */
export function store(kind: Kind, key: string, text: string | null): void {
  try {
    if (text === null) window[kind].removeItem(key)
    else window[kind].setItem(key, text)
  } catch {
    // Nothing to do: the text does not survive a reload.
  }
}

/** Removes all texts of this tab. */
export function clearTab(): void {
  try {
    window.sessionStorage.clear()
  } catch {
    // Nothing is stored.
  }
}

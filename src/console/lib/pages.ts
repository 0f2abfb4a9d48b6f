import { BASE } from '../api.ts'
import { texts } from '../texts.ts'
import { hasUnsaved } from '../unsaved.ts'
import { readStored, store } from './storage.ts'

const KEY = 'muster.reloaded'

/** The file of a page was not loaded, because the server cannot be reached. */
export class PageUnreached extends TypeError {}

/** The file of a page is gone. Safari loads a file that has failed once only after the page is loaded again. */
export class PageGone extends Error {}

/**
 * Loads the file of a page, also ahead of a click. Throws {@link PageUnreached} without a connection, and
 * {@link PageGone} after an update of the server.
 */
export async function loadPage<Module>(load: () => Promise<Module>): Promise<Module> {
  try {
    const module = await load()
    store('sessionStorage', KEY, null)
    return module
  } catch (error) {
    const isReached = await fetch(`${BASE}/app`).then(
      ({ ok }) => ok,
      () => false,
    )
    if (!isReached) throw new PageUnreached('A page was not loaded', { cause: error })
    throw new PageGone(texts.updated, { cause: error })
  }
}

/** Reloads for the file of a page that is gone: once, and unless that would lose input. */
export function reloadFor({ cause }: PageGone): void {
  const message = cause instanceof Error ? cause.message : String(cause)
  const isFirst = readStored('sessionStorage', KEY) !== message
  // Without a storage the page would reload for ever.
  if (!hasUnsaved() && isFirst && store('sessionStorage', KEY, message)) location.reload()
}

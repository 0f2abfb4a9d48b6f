import { BASE } from '../api.ts'
import { hasUnsaved } from '../unsaved.ts'
import { readStored, store } from './storage.ts'

const KEY = 'muster.reloaded'

/**
 * Loads the file of a page. If it is gone after an update of the server, reloads once. Without a connection it throws an
 * error of requests, which offers to try again, because a reload would lose the page that is open.
 */
export async function loadPage<Module>(load: () => Promise<Module>): Promise<Module> {
  try {
    return await load()
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    const isReached = await fetch(`${BASE}/app`).then(
      ({ ok }) => ok,
      () => false,
    )
    if (isReached && !hasUnsaved() && readStored('sessionStorage', KEY) !== message) {
      store('sessionStorage', KEY, message)
      location.reload()
    }
    throw new TypeError('A page was not loaded', { cause: error })
  }
}

import { readStored, store } from '../../lib/storage.ts'

/** The key of the composer of a new chat. */
export const NEW = 'new'

const keyOf = (chat: string) => `muster.draft.${chat}`

/** Returns the unsent text of a composer, which survives a reload of this tab. */
export const readDraft = (chat: string): string => readStored('sessionStorage', keyOf(chat)) ?? ''

/** Stores the unsent text of a composer, or removes an empty one. */
export const storeDraft = (chat: string, text: string): void => void store('sessionStorage', keyOf(chat), text || null)

/** Moves texts that a chat did not get to the composer of a new chat, behind its own. */
export function moveToNewChat(chat: string, texts: readonly string[]): void {
  storeDraft(chat, '')
  storeDraft(NEW, [readDraft(NEW), ...texts].filter(Boolean).join('\n\n'))
}

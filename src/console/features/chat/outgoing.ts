import { useCallback, useEffect, useState, useSyncExternalStore } from 'react'
import { callMutation, describeFailure, toFailure } from '../../api.ts'
import { newId } from '../../lib/id.ts'
import { readStoredList, store } from '../../lib/storage.ts'
import { queryClient } from '../../queries.ts'
import { keepUnsaved } from '../../unsaved.ts'
import { NAMED_AGENTS } from '../agents/names.ts'
import type { Outgoing } from './waiting.ts'

const NONE: readonly Outgoing[] = []
const byChat = new Map<string, readonly Outgoing[]>()
const listeners = new Set<() => void>()

const keyOf = (chatId: string) => `muster.outgoing.${chatId}`

const isUnsent = ({ executionId }: Outgoing) => executionId === null

/** Returns whether a stored value is an unsent message, which another version of the page may have stored. */
function isStored(value: unknown): value is Outgoing {
  const { key, text, executionId, error } = (value ?? {}) as Partial<Outgoing>
  return typeof key === 'string' && typeof text === 'string' && executionId === null && error !== undefined
}

/** Changes the messages of a chat. Unsent ones survive a reload of this tab, as drafts do. */
function change(chatId: string, next: (before: readonly Outgoing[]) => readonly Outgoing[]): void {
  const outgoing = next(byChat.get(chatId) ?? NONE)
  byChat.set(chatId, outgoing)
  const unsent = outgoing.filter(isUnsent)
  store('sessionStorage', keyOf(chatId), unsent.length ? JSON.stringify(unsent) : null)
  keepUnsaved(byChat, [...byChat.values()].flat().some(isUnsent))
  for (const listener of listeners) listener()
}

const patch = (chatId: string, key: string, changes: Partial<Outgoing>) =>
  change(chatId, (before) => before.map((each) => (each.key === key ? { ...each, ...changes } : each)))

/** Shows a message that has been accepted. */
export const addAccepted = (chatId: string, text: string, executionId: string): void =>
  change(chatId, (before) => [...before, { key: executionId, text, executionId, error: null }])

function attempt(chatId: string, { key, text, details }: Outgoing): void {
  patch(chatId, key, { error: null })
  callMutation('chats.send', { ...details, id: chatId, message: text, background: true, idempotencyKey: key }).then(
    ({ executionId }) => patch(chatId, key, { executionId }),
    (error) => {
      patch(chatId, key, { error: describeFailure(error) })
      // The agent may be gone.
      if (toFailure(error).status === 404) void queryClient.invalidateQueries({ queryKey: NAMED_AGENTS })
    },
  )
}

/** Shows the unsent messages from before a reload, and sends those again whose request the reload has cut. */
function restore(chatId: string): void {
  const stored = readStoredList('sessionStorage', keyOf(chatId), isStored)
  change(chatId, () => stored)
  for (const one of stored) if (one.error === null) attempt(chatId, one)
}

/** The messages of a chat that are being sent. */
export function useOutgoing(chatId: string) {
  const outgoing = useSyncExternalStore(
    useCallback((listener: () => void) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    }, []),
    () => byChat.get(chatId) ?? NONE,
  )
  useEffect(() => {
    if (!byChat.has(chatId)) restore(chatId)
    change(chatId, (before) => before.filter(({ hasEnded }) => !hasEnded))
  }, [chatId])
  const [lastSent, setLastSent] = useState<string>()
  const add = (text: string, details: Outgoing['details'], after: string) => {
    const one = { key: newId(), text, after, ...(details && { details }), executionId: null, error: null }
    change(chatId, (before) => [...before, one])
    setLastSent(one.key)
    attempt(chatId, one)
  }
  return {
    outgoing,
    /** The last message that the person has sent from this page. Others may wait when it is listed. */
    lastSent,
    add,
    again: (one: Outgoing) => attempt(chatId, one),
    end: (key: string) => patch(chatId, key, { hasEnded: true }),
    drop: (key: string) => change(chatId, (before) => before.filter((each) => each.key !== key)),
  }
}

import { useCallback, useEffect, useSyncExternalStore } from 'react'
import { describeFailure } from '../../api.ts'
import { newId } from '../../lib/id.ts'
import { keepUnsaved } from '../../unsaved.ts'
import type { Outgoing } from './waiting.ts'

const NONE: readonly Outgoing[] = []
const byChat = new Map<string, readonly Outgoing[]>()
const listeners = new Set<() => void>()

function change(chatId: string, next: (before: readonly Outgoing[]) => readonly Outgoing[]): void {
  byChat.set(chatId, next(byChat.get(chatId) ?? NONE))
  keepUnsaved(
    byChat,
    [...byChat.values()].flat().some(({ executionId }) => executionId === null),
  )
  for (const listener of listeners) listener()
}

const patch = (chatId: string, key: string, changes: Partial<Outgoing>) =>
  change(chatId, (before) => before.map((each) => (each.key === key ? { ...each, ...changes } : each)))

/** Shows a message that has been accepted. */
export const addAccepted = (chatId: string, text: string, executionId: string): void =>
  change(chatId, (before) => [
    ...before,
    { key: executionId, text, executionId, error: null, send: async () => ({ executionId }) },
  ])

function attempt(chatId: string, { key, send }: Pick<Outgoing, 'key' | 'send'>): void {
  patch(chatId, key, { error: null })
  send(key).then(
    ({ executionId }) => patch(chatId, key, { executionId }),
    (error) => patch(chatId, key, { error: describeFailure(error) }),
  )
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
  useEffect(() => change(chatId, (before) => before.filter(({ hasEnded }) => !hasEnded)), [chatId])
  const add = (text: string, send: Outgoing['send']) => {
    const one = { key: newId(), text, executionId: null, error: null, send }
    change(chatId, (before) => [...before, one])
    attempt(chatId, one)
  }
  return {
    outgoing,
    add,
    again: (one: Outgoing) => attempt(chatId, one),
    end: (key: string) => patch(chatId, key, { hasEnded: true }),
    drop: (key: string) => change(chatId, (before) => before.filter((each) => each.key !== key)),
  }
}

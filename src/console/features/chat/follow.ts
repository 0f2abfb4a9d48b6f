import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useReducer, useState } from 'react'
import type { ChatEvent, ChatStatus } from '../../../wire.ts'
import { ask, client, toFailure } from '../../api.ts'
import { apply, type Live } from './live.ts'
import type { Message } from './tree.ts'

/** Waits between attempts to connect (ms): the first ones come soon. */
const WAITS = [250, 500, 1_000, 2_000, 5_000]

/**
 * Follows a chat until it is told to stop. It comes back by itself after a lost connection and a restarted server, behind the last
 * event that it had. `onState` says whether it is connected; `onGone` that the chat cannot be followed any more.
 */
function followChat(
  id: string,
  handlers: {
    onEvent: (event: ChatEvent) => void
    onState: (connected: boolean) => void
    onGone: (error: unknown) => void
  },
): () => void {
  let lastEventId: string | null = null
  let attempt = 0
  let isOver = false
  let timer: ReturnType<typeof setTimeout> | undefined
  let subscription: { unsubscribe: () => void } | undefined
  let opened = 0

  const again = () => {
    if (isOver) return
    handlers.onState(false)
    // What the closed one still says is not heard.
    opened += 1
    subscription?.unsubscribe()
    clearTimeout(timer)
    timer = setTimeout(open, WAITS[Math.min(attempt, WAITS.length - 1)])
    attempt += 1
  }

  function open() {
    opened += 1
    const own = opened
    subscription?.unsubscribe()
    subscription = client.subscription(
      'chats.events',
      { id, lastEventId },
      {
        onData(given: unknown) {
          if (own !== opened) return
          const { id: eventId, data } = given as { id: string; data: ChatEvent }
          attempt = 0
          lastEventId = eventId
          handlers.onState(true)
          handlers.onEvent(data)
        },
        onStarted: () => handlers.onState(true),
        // An EventSource would come back by itself, but late, and not after every refusal.
        onConnectionStateChange: ({ state, error }: { state: string; error?: unknown }) => {
          if (state === 'connecting' && error && own === opened) again()
        },
        onError(error: unknown) {
          if (own !== opened) return
          const { status } = toFailure(error)
          if ([401, 403, 404].includes(status)) {
            isOver = true
            handlers.onGone(error)
          } else again()
        },
        onComplete: () => own === opened && again(),
      },
    )
  }

  // The browser says when it is worth a try.
  const wake = () => {
    if (isOver || !timer) return
    clearTimeout(timer)
    attempt = 0
    open()
  }
  window.addEventListener('online', wake)
  open()
  return () => {
    isOver = true
    clearTimeout(timer)
    window.removeEventListener('online', wake)
    subscription?.unsubscribe()
  }
}

/** Reads all messages of a chat, of every branch. */
export async function readMessages(id: string, signal?: AbortSignal): Promise<{ messages: Message[]; title: string }> {
  const messages: Message[] = []
  let title = ''
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await ask('chats.messages', { id, branch: 'all', ...(cursor && { cursor }) }, signal)
    messages.push(...page.messages)
    title = page.title
    cursor = page.nextCursor
  }
  return { messages, title }
}

export const messagesKey = (id: string) => ['chats.messages', id] as const

/** The state of a chat that is followed. */
export function useFollowedChat(id: string) {
  const cache = useQueryClient()
  const [live, dispatch] = useReducer(
    (before: Live, event: ChatEvent | 'forget') => (event === 'forget' ? new Map() : apply(before, event)),
    new Map(),
  )
  const [status, setStatus] = useState<ChatStatus | null>(null)
  const [connected, setConnected] = useState(true)
  const [gone, setGone] = useState<unknown>(null)

  useEffect(() => {
    dispatch('forget')
    setStatus(null)
    setGone(null)
    const reread = () => void cache.invalidateQueries({ queryKey: messagesKey(id) })
    return followChat(id, {
      onEvent(event) {
        dispatch(event)
        if (event.event === 'status') {
          setStatus(event.data.status)
          void cache.invalidateQueries({ queryKey: ['chats.list'] })
          void cache.invalidateQueries({ queryKey: ['approvals.list'] })
        }
        // A question is written when its run begins, an answer when it ends.
        if (event.event !== 'message') reread()
        else if (event.data.messageType === 'approval') void cache.invalidateQueries({ queryKey: ['approvals.list'] })
      },
      onState: setConnected,
      onGone: setGone,
    })
  }, [id, cache])

  return { live, status, connected, gone }
}

import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useReducer, useState } from 'react'
import type { ChatEvent, ChatStatus } from '../../../wire.ts'
import { callQuery } from '../../api.ts'
import { follow } from '../../follow.ts'
import { reread } from '../../lib/reread.ts'
import { apply, type Live } from './live.ts'
import type { Message } from './tree.ts'
import type { WaitingQuestion } from './waiting.ts'

/** Reads all messages of a chat, of every branch. */
export async function readMessages(id: string, signal?: AbortSignal): Promise<{ messages: Message[]; title: string }> {
  const messages: Message[] = []
  let title = ''
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await callQuery('chats.messages', { id, branch: 'all', ...(cursor && { cursor }) }, signal)
    messages.push(...page.messages)
    title = page.title
    cursor = page.nextCursor
  }
  return { messages, title }
}

export const messagesKey = (id: string) => ['chats.messages', id] as const

export const waitingKey = (chatId: string) => ['executions.list', 'waiting', chatId] as const

/** Reads the waiting questions of a chat. Keeps earlier ones, whose runs may have begun and are not listed yet. */
export async function readWaiting(
  chatId: string,
  before: readonly WaitingQuestion[] = [],
  signal?: AbortSignal,
): Promise<readonly WaitingQuestion[]> {
  const { executions } = await callQuery('executions.list', { chatId, status: 'pending' }, signal)
  const read = executions.map(({ executionId, userId, message }) => ({ executionId, userId, message }))
  return [...new Map([...before, ...read].map((question) => [question.executionId, question])).values()]
}

/** Time within which events are drawn together (ms), because a fast model says hundreds of words a second. */
const TOGETHER = 40

/** The state of a followed chat. */
export function useFollowedChat(id: string) {
  const cache = useQueryClient()
  const [live, dispatch] = useReducer(
    (before: Live, events: readonly ChatEvent[] | 'forget') =>
      events === 'forget' ? new Map() : events.reduce(apply, before),
    new Map(),
  )
  const [status, setStatus] = useState<ChatStatus | null>(null)
  const [connected, setConnected] = useState(true)
  const [gone, setGone] = useState<unknown>(null)

  useEffect(() => {
    dispatch('forget')
    setStatus(null)
    setGone(null)
    const changed = (queryKey: readonly unknown[]) => void reread(cache, { queryKey })
    let lastEventId: string | null = null
    let news: ChatEvent[] = []
    let timer: ReturnType<typeof setTimeout> | undefined
    const draw = () => {
      timer = undefined
      dispatch(news)
      news = []
    }
    const stop = follow('chats.events', () => ({ id, lastEventId }), {
      onData(given) {
        const { id: eventId, data: event } = given as { id: string; data: ChatEvent }
        lastEventId = eventId
        news.push(event)
        timer ??= setTimeout(draw, TOGETHER)
        if (event.event === 'status') {
          setStatus(event.data.status)
          changed(['chats.list'])
          changed(['approvals.list'])
        }
        // A question is stored when its run starts, an answer when it ends.
        const isSummary = event.event === 'message' && event.data.messageType === 'summary' && event.data.text
        if (event.event !== 'message' || isSummary) changed(messagesKey(id))
        else if (event.data.messageType === 'approval') changed(['approvals.list'])
        if (event.event === 'meta') changed(waitingKey(id))
      },
      onState: setConnected,
      onGone: setGone,
    })
    return () => {
      clearTimeout(timer)
      stop()
    }
  }, [id, cache])

  return { live, status, connected, gone }
}

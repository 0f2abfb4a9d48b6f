import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import type { ExecutionEvent } from '../../../wire.ts'
import { client, toFailure } from '../../api.ts'

const WAITS = [250, 500, 1_000, 2_000, 5_000]

export type Numbered = ExecutionEvent & { seq: number; at: Date | string }

/** All events of a run, and those to come. It comes back after a lost connection behind the last event it has. */
export function useRunEvents(executionId: string) {
  const cache = useQueryClient()
  const [events, setEvents] = useState<readonly Numbered[]>([])
  const [isConnected, setIsConnected] = useState(true)
  const [error, setError] = useState<unknown>(null)
  const waiting = useRef<Numbered[]>([])

  useEffect(() => {
    setEvents([])
    setError(null)
    let lastSeq = 0
    let attempt = 0
    let isOver = false
    let opened = 0
    let timer: ReturnType<typeof setTimeout> | undefined
    let subscription: { unsubscribe: () => void } | undefined
    let frame = 0

    // Tokens come one by one: the page is drawn once a frame.
    const draw = () => {
      frame = 0
      const news = waiting.current
      waiting.current = []
      setEvents((before) => [...before, ...news])
    }

    const again = () => {
      if (isOver) return
      opened += 1
      subscription?.unsubscribe()
      setIsConnected(false)
      clearTimeout(timer)
      timer = setTimeout(open, WAITS[Math.min(attempt, WAITS.length - 1)])
      attempt += 1
    }

    function open() {
      opened += 1
      const own = opened
      subscription = client.subscription(
        'executions.events',
        { executionId, after: lastSeq },
        {
          onData(given: unknown) {
            const { data } = given as { data: Numbered }
            if (own !== opened || data.seq <= lastSeq) return
            lastSeq = data.seq
            attempt = 0
            setIsConnected(true)
            waiting.current.push(data)
            frame ||= requestAnimationFrame(draw)
            const { event } = data
            if (event === 'result' || event === 'error') isOver = true
            if (event !== 'message' || data.data.messageType !== 'stream_event') {
              void cache.invalidateQueries({ queryKey: ['executions.get', { id: executionId }] })
              void cache.invalidateQueries({ queryKey: ['executions.tree', { id: executionId }] })
            }
          },
          onStarted: () => setIsConnected(true),
          onConnectionStateChange: ({ state, error: lost }: { state: string; error?: unknown }) => {
            if (state === 'connecting' && lost && own === opened) again()
          },
          onError(failure: unknown) {
            if (own !== opened) return
            if ([401, 403, 404].includes(toFailure(failure).status)) {
              isOver = true
              setError(failure)
            } else again()
          },
          onComplete: () => own === opened && again(),
        },
      )
    }
    open()
    return () => {
      isOver = true
      clearTimeout(timer)
      cancelAnimationFrame(frame)
      waiting.current = []
      subscription?.unsubscribe()
    }
  }, [executionId, cache])

  return { events, isConnected, error }
}

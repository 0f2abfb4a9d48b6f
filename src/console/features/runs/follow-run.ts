import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import type { ExecutionEvent } from '../../../wire.ts'
import { follow } from '../../follow.ts'
import { inTurn, reread } from '../../lib/reread.ts'

export type Numbered = ExecutionEvent & { seq: number; at: Date | string }

/** All past and future events of a run. Reconnects after a lost connection behind the last event. */
export function useRunEvents(executionId: string) {
  const cache = useQueryClient()
  const [events, setEvents] = useState<readonly Numbered[]>([])
  const [error, setError] = useState<unknown>(null)
  const waiting = useRef<Numbered[]>([])

  useEffect(() => {
    setEvents([])
    setError(null)
    let lastSeq = 0
    let frame = 0

    const rereadRun = inTurn(() =>
      Promise.all(
        ['executions.get', 'executions.tree'].map((name) => reread(cache, { queryKey: [name, { id: executionId }] })),
      ),
    )

    // Renders and reads at most once a frame, because tokens, and the past events of a run, come one by one.
    const draw = () => {
      frame = 0
      const news = waiting.current
      waiting.current = []
      setEvents((before) => [...before, ...news])
      const isProgress = ({ event, data }: Numbered) => event === 'message' && data.messageType === 'stream_event'
      if (news.every(isProgress)) return
      void rereadRun()
    }
    const stop = follow('executions.events', () => ({ executionId, after: lastSeq }), {
      onData(given) {
        const { data } = given as { data: Numbered }
        if (data.seq <= lastSeq) return
        lastSeq = data.seq
        waiting.current.push(data)
        frame ||= requestAnimationFrame(draw)
        const { event } = data
        if (event === 'result' || event === 'error') stop()
      },
      onGone: setError,
    })
    return () => {
      cancelAnimationFrame(frame)
      waiting.current = []
      stop()
    }
  }, [executionId, cache])

  return { events, error }
}

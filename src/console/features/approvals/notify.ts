import { useEffect, useRef } from 'react'
import { texts } from '../../texts.ts'
import { useWaiting } from './badge.ts'

/** Shows new approvals as notifications of the browser, if the page is hidden and the person has enabled them. */
export function useNotifications(): void {
  const waiting = useWaiting()
  const known = useRef<ReadonlySet<string> | null>(null)
  useEffect(() => {
    if (!waiting) return
    const before = known.current
    known.current = new Set(waiting.map(({ id }) => id))
    if (!before || !document.hidden || !('Notification' in window) || Notification.permission !== 'granted') return
    for (const { id, tool, agentName } of waiting) {
      if (before.has(id)) continue
      new Notification(texts.approvals.notification(agentName ?? texts.chat.agent, tool), { tag: id })
    }
  }, [waiting])
}

import { useQuery } from '@tanstack/react-query'
import { useEffect, useRef } from 'react'
import { texts } from '../../texts.ts'
import { waitingQuery } from './badge.ts'

/** Shows new approvals as notifications of the browser, if the page is hidden and the person has enabled them. */
export function useNotifications(): void {
  const { data } = useQuery(waitingQuery)
  const known = useRef<ReadonlySet<string> | null>(null)
  useEffect(() => {
    if (!data) return
    const before = known.current
    known.current = new Set(data.approvals.map(({ id }) => id))
    if (!before || !document.hidden || !('Notification' in window) || Notification.permission !== 'granted') return
    for (const { id, tool, agentName } of data.approvals) {
      if (before.has(id)) continue
      new Notification(texts.approvals.notification(agentName ?? texts.chat.agent, tool), { tag: id })
    }
  }, [data])
}

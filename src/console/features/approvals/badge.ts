import { useQuery } from '@tanstack/react-query'
import { query } from '../../queries.ts'

/** How often approvals are looked for (ms) beside what chats that are followed say. */
const EVERY = 10_000

export const waitingQuery = query('approvals.list', { status: 'pending', limit: 100 })

/** The number of approvals that wait for somebody. */
export function useBadge(): number {
  const { data } = useQuery({ ...waitingQuery, refetchInterval: EVERY })
  return data?.approvals.length ?? 0
}

import { useQuery } from '@tanstack/react-query'
import { useIsHidden } from '../../follow.ts'
import { query } from '../../queries.ts'

/** Interval at which a page in the background looks for approvals for its notifications (ms). */
const IN_BACKGROUND = 30_000

export const waitingQuery = query('approvals.list', { status: 'pending', limit: 100 })

/** The number of approvals that wait for the person. */
export function useBadge(): number {
  const isHidden = useIsHidden()
  const { data } = useQuery({
    ...waitingQuery,
    refetchInterval: isHidden && IN_BACKGROUND,
    refetchIntervalInBackground: true,
  })
  return data?.approvals.length ?? 0
}

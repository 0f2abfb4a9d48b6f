import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { useIsHidden } from '../../follow.ts'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'

/** Interval at which a page in the background looks for approvals for its notifications (ms). */
const IN_BACKGROUND = 30_000

/** Reads the approvals that wait for the person: those of the person's runs, and for admins all that they can see. */
export function useWaiting() {
  const isHidden = useIsHidden()
  const { role, user } = useSession()
  const { data } = useQuery({
    ...query('approvals.list', { status: 'pending', limit: 100 }),
    refetchInterval: isHidden && IN_BACKGROUND,
    refetchIntervalInBackground: true,
  })
  return useMemo(
    () => data?.approvals.filter(({ userId }) => role !== 'member' || userId === user.id),
    [data, role, user.id],
  )
}

/** The number of approvals that wait for the person. */
export const useBadge = (): number => useWaiting()?.length ?? 0

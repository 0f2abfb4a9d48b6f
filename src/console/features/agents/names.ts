import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'

/** Names agents by their ids, as far as the person can see them. */
export function useAgentNames(): (id: string) => string {
  const shared = useQuery({ ...query('agents.list', { limit: 1000 }), staleTime: 60_000 })
  const own = useQuery({ ...query('agents.list', { owner: 'me', limit: 1000 }), staleTime: 60_000 })
  // An id is shown once it is sure that the name cannot be.
  const isLoading = shared.isPending || own.isPending
  return useMemo(() => {
    const all = [...(shared.data?.agents ?? []), ...(own.data?.agents ?? [])]
    const names = new Map(all.map(({ id, name }) => [id, name]))
    return (id) => names.get(id) ?? (isLoading ? '…' : id)
  }, [shared.data, own.data, isLoading])
}

/** The people of the organization. */
export function useMembers() {
  const { organization } = useSession()
  return useQuery({
    ...query('organizations.members', { id: organization?.id ?? '' }),
    enabled: organization !== null,
    staleTime: 60_000,
  })
}

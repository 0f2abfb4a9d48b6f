import { useQuery } from '@tanstack/react-query'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'

/** Names agents by their ids, as far as the person can see them. */
export function useAgentNames(): (id: string) => string {
  const shared = useQuery({ ...query('agents.list', { limit: 1000 }), staleTime: 60_000 })
  const own = useQuery({ ...query('agents.list', { owner: 'me', limit: 1000 }), staleTime: 60_000 })
  const names = new Map([...(shared.data?.agents ?? []), ...(own.data?.agents ?? [])].map(({ id, name }) => [id, name]))
  return (id) => names.get(id) ?? id
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

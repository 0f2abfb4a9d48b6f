import { useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'

/** Maximum number of agents in a list. The server searches the rest. */
export const MAX_AGENTS = 1000

/** The agents of the organization that the person can use: their own of every visibility, and the shared ones. */
export function useAgents() {
  const own = useQuery({
    ...query('agents.list', { owner: 'me', limit: MAX_AGENTS }),
    refetchInterval: 60_000,
    staleTime: 60_000,
  })
  const shared = useQuery({
    ...query('agents.list', { limit: MAX_AGENTS }),
    refetchInterval: 60_000,
    staleTime: 60_000,
  })
  const agents = useMemo(() => {
    const all = [...(own.data?.agents ?? []), ...(shared.data?.agents ?? [])]
    return [...new Map(all.map((agent) => [agent.id, agent])).values()]
  }, [own.data, shared.data])
  return {
    agents,
    isPending: own.isPending || shared.isPending,
    error: own.error ?? shared.error,
    refetch: () => Promise.all([own.refetch(), shared.refetch()]),
  }
}

/** Names agents by their ids, as far as the person can see them. */
export function useAgentNames(): (id: string) => string {
  const { agents, isPending } = useAgents()
  return useMemo(() => {
    const names = new Map(agents.map(({ id, name }) => [id, name]))
    return (id) => names.get(id) ?? (isPending ? '…' : texts.agents.unknown(id.slice(0, 6)))
  }, [agents, isPending])
}

/** The people of the organization. `isNeeded`: whether to read them. */
export function useMembers(isNeeded = true) {
  const { organization } = useSession()
  return useQuery({
    ...query('organizations.members', { id: organization?.id ?? '' }),
    enabled: isNeeded && organization !== null,
    refetchInterval: 60_000,
    staleTime: 60_000,
  })
}

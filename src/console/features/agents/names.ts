import { queryOptions, useQueries, useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { callQuery } from '../../api.ts'
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

/** An agent that is in no list: one of many, an unlisted one, or a public one of another organization. */
export const unlistedAgent = (id: string) =>
  queryOptions({
    queryKey: ['agents.get', 'unlisted', id],
    queryFn: async (): Promise<{ id: string; name: string; initialGreeting?: string | null }> => {
      const found = await callQuery('agents.get', { id }).catch(() => callQuery('agents.getPublic', { id }))
      return found.agent
    },
    retry: false,
    staleTime: 60_000,
  })

type Found = { data: { id: string; name: string } | undefined; isPending: boolean }

const combine = (found: readonly Found[]) => ({
  names: Object.fromEntries(found.flatMap(({ data }) => (data ? [[data.id, data.name]] : []))),
  isPending: found.some((each) => each.isPending),
})

/** Names agents by their ids, as far as the person can see them. Reads those of `ids` that are in no list. */
export function useAgentNames(ids: readonly string[]): (id: string) => string {
  const { agents, isPending } = useAgents()
  const listed = useMemo(() => new Map(agents.map(({ id, name }) => [id, name])), [agents])
  const others = isPending ? [] : [...new Set(ids)].filter((id) => id && !listed.has(id))
  const found = useQueries({ queries: others.map(unlistedAgent), combine })
  return useMemo(() => {
    const isReading = isPending || found.isPending
    return (id) => listed.get(id) ?? found.names[id] ?? (isReading ? '…' : texts.agents.unknown(id.slice(0, 6)))
  }, [listed, found, isPending])
}

/** The name of an agent, see {@link useAgentNames}. */
export const AgentName = ({ id }: { id: string }): string => useAgentNames([id])(id)

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

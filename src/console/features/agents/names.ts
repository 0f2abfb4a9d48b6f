import { queryOptions, useQueries, useQuery } from '@tanstack/react-query'
import { useMemo } from 'react'
import { callQuery, type Output, toFailure } from '../../api.ts'
import { useSettled } from '../../lib/settled.ts'
import { query } from '../../queries.ts'
import { useSession } from '../../session.ts'
import { texts } from '../../texts.ts'

/** Maximum number of agents in a list of options. The server searches the rest. */
const MAX_FOUND = 50

/**
 * The first agents of the organization that the person can use, of those with a text if there is one: their own of
 * every visibility, and the shared ones.
 */
export function useFoundAgents(text = '') {
  const search = useSettled(text)
  const filter = { ...(search && { search }), limit: MAX_FOUND }
  const often = { refetchInterval: 60_000, staleTime: 60_000 }
  const own = useQuery({ ...query('agents.list', { ...filter, owner: 'me' }), ...often })
  const shared = useQuery({ ...query('agents.list', filter), ...often })
  const found = useMemo(() => {
    const all = [...(own.data?.agents ?? []), ...(shared.data?.agents ?? [])]
    return [...new Map(all.map((agent) => [agent.id, agent])).values()]
  }, [own.data, shared.data])
  const isPending = search !== text || own.isPending || shared.isPending
  return {
    agents: isPending ? NONE : found,
    isPending,
    hasMore: !isPending && [own, shared].some(({ data }) => data?.nextCursor),
    error: own.error ?? shared.error,
    refetch: () => Promise.all([own.refetch(), shared.refetch()]),
  }
}

const NONE: Output<'agents.list'>['agents'] = []

/** The begin of the keys of all {@link agentQuery}. */
export const NAMED_AGENTS = ['agents.get', 'named']

/** An agent that a person chooses or reads of: of the organization, or a public one of another. */
export const agentQuery = (id: string) =>
  queryOptions({
    queryKey: [...NAMED_AGENTS, id],
    queryFn: async (): Promise<{ id: string; name: string; initialGreeting?: string | null; userId?: string }> => {
      const found = await callQuery('agents.get', { id }).catch((error) => {
        if (toFailure(error).status !== 404) throw error
        return callQuery('agents.getPublic', { id })
      })
      return found.agent
    },
    staleTime: 60_000,
  })

type Found = { data: { id: string; name: string } | undefined; isPending: boolean }

const combine = (found: readonly Found[]) => ({
  names: new Map(found.flatMap(({ data }) => (data ? [[data.id, data.name]] : []))),
  isPending: found.some((each) => each.isPending),
})

/** Names agents by their ids, as far as the person can see them. */
export function useAgentNames(ids: readonly string[]): (id: string) => string {
  const queries = [...new Set(ids)].filter(Boolean).map(agentQuery)
  const found = useQueries({ queries, combine })
  return useMemo(
    () => (id) => found.names.get(id) ?? (found.isPending ? '…' : texts.unknownAgent(id.slice(0, 6))),
    [found],
  )
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

/** Names people by their ids, and the person as "You". A name is null until it is known. */
export function usePeopleNames(ids: readonly string[]): (id: string) => string | null {
  const { user } = useSession()
  const { data } = useMembers(ids.some((id) => id !== user.id))
  return (id) => {
    if (id === user.id) return texts.chat.you
    return data ? (data.members.find(({ userId }) => userId === id)?.name ?? texts.chat.formerMember) : null
  }
}

import {
  type InfiniteData,
  infiniteQueryOptions,
  keepPreviousData,
  QueryCache,
  QueryClient,
  QueryObserver,
  queryOptions,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'
import { useId, useRef, useState } from 'react'
import { callQuery, describeFailure, type Input, type Output, type Path, toFailure } from './api.ts'
import { toast } from './components/toast.tsx'
import { useIsThere } from './lib/is-there.ts'
import { reread } from './lib/reread.ts'
import { sessionQuery, signIn } from './session.ts'

const hasNoUse = (status: number) => status >= 400 && status < 500 && status !== 429

/**
 * Redirects a person whose session has ended to the sign-in page. Reads the session again after a 403, because the
 * membership may have ended.
 */
const onRefused = (error: unknown) => {
  const { status } = toFailure(error)
  if (status === 401) signIn()
  if (status === 403) void queryClient.invalidateQueries(sessionQuery)
}

export const queryClient = new QueryClient({
  queryCache: new QueryCache({
    // A session that is refused would be read for ever.
    onError: (error, { queryKey }) => queryKey[0] !== sessionQuery.queryKey[0] && onRefused(error),
  }),
  defaultOptions: {
    // A browser without a network may still reach a server on the same computer.
    mutations: { networkMode: 'always' },
    queries: {
      networkMode: 'always',
      // Otherwise false in this mode.
      refetchOnReconnect: true,
      staleTime: 5_000,
      retry: (count, error) => count < 2 && !hasNoUse(toFailure(error).status),
    },
  },
})

/** Options of a list that is read again at an interval (ms). It is longer the more pages of it are loaded. */
export const everyMs = (ms: number) => ({
  refetchInterval: ({ state: { data } }: { state: { data: unknown } }) =>
    ms * Math.max(1, (data as { pages?: readonly unknown[] } | undefined)?.pages?.length ?? 1),
})

/** Options of lists that others may change meanwhile, and that have no stream of changes. */
export const WATCHED = everyMs(30_000)

/** A query of a procedure. Pages that watch it pass {@link WATCHED} or another `refetchInterval`. */
export const query = <Name extends Path>(name: Name, input: Input<Name>) =>
  queryOptions({
    queryKey: [name, input],
    queryFn: ({ signal }) => callQuery(name, input, signal),
  })

/**
 * Reads a query now, also if its last answer is new. The pages that watch it show the answer. Replaces a read that began
 * earlier, whose answer may be older than the change of another person, or never come. Watches the query itself, because
 * a person who leaves these pages would end the read otherwise, and the last answer would pass for a new one.
 */
export async function readNow<Name extends Path>(name: Name, input: Input<Name>): Promise<Output<Name>> {
  const observer = new QueryObserver(queryClient, { ...query(name, input), enabled: false })
  const leave = observer.subscribe(() => {})
  const { data } = await observer.refetch({ throwOnError: true }).finally(leave)
  return data as Output<Name>
}

/** Like {@link useQuery}, for a list in pages. */
export const pages = <Name extends Path>(name: Name, input: Input<Name>, limit = 50) =>
  infiniteQueryOptions<
    Output<Name>,
    Error,
    InfiniteData<Output<Name>, string | null>,
    readonly unknown[],
    string | null
  >({
    queryKey: [name, input, 'pages', limit],
    queryFn: ({ pageParam, signal }) =>
      callQuery(name, { ...(input as object), limit, ...(pageParam && { cursor: pageParam }) } as Input<Name>, signal),
    initialPageParam: null,
    getNextPageParam: (last) => (last as { nextCursor?: string | null }).nextCursor ?? null,
    placeholderData: keepPreviousData,
  })

/** Maximum number of rows on a page of a list. */
const MAX_PAGE = 1_000

/** A query of all pages of a list. */
export const allPages = <Name extends Path>(name: Name, input = {} as Input<Name>) =>
  queryOptions<Output<Name>[]>({
    queryKey: [name, input, 'all'],
    queryFn: async ({ signal }) => {
      const all: Output<Name>[] = []
      for (let cursor: string | null | undefined; cursor !== null; ) {
        const page = await callQuery(name, { ...(input as object), limit: MAX_PAGE, cursor } as Input<Name>, signal)
        all.push(page)
        cursor = (page as { nextCursor?: string | null }).nextCursor ?? null
      }
      return all
    },
    placeholderData: keepPreviousData,
  })

type ActionOptions<Given, Answer> = {
  /** The first words of the keys of queries to read again. */
  changes?: readonly string[]
  /** A message of success. */
  done?: string
  /** Changes the page. Not called if the person has left the page, or closed the dialog, of the action meanwhile. */
  onDone?: (answer: Answer, given: Given) => void
  /** Whether the page shows a failure itself, as long as the person is there. */
  quiet?: boolean
  /** Whether the action is pending until the changed queries were read again. */
  untilRead?: boolean
  /** Whether a call waits for the calls before it. Answers of a slow network come in any order otherwise. */
  inTurn?: boolean
}

/**
 * Returns an action of the person, which runs once if it is asked for twice at the same time. Reloads changed queries,
 * and shows a failure. `pending` has what all calls were given that are not answered yet, the last one last.
 */
export function useAction<Given, Answer>(
  run: (given: Given) => Promise<Answer>,
  options: ActionOptions<Given, Answer> = {},
) {
  const cache = useQueryClient()
  const id = useId()
  const running = useRef(new Map<Given, Promise<Answer>>())
  const [pending, setPending] = useState<readonly Given[]>([])
  const isThere = useIsThere()
  const rereadChanges = () =>
    reread(cache, {
      predicate: ({ queryKey: [name] }) => options.changes?.some((prefix) => String(name).startsWith(prefix)) ?? false,
    })
  const action = useMutation({
    ...(options.inTurn && { scope: { id } }),
    mutationFn: (given: Given) => {
      // The second click of a double click may come before the button is disabled.
      const same = running.current.get(given)
      if (same) return same
      const answer = run(given).finally(() => running.current.delete(given))
      running.current.set(given, answer)
      return answer
    },
    onMutate: (given) => setPending((before) => [...before, given]),
    onSuccess: async (answer, given) => {
      const isRead = rereadChanges()
      if (options.done) toast(options.done)
      if (isThere()) options.onDone?.(answer, given)
      if (options.untilRead) await isRead
    },
    onError: (error) => {
      onRefused(error)
      // The object of the change is gone or has changed.
      if ([404, 409].includes(toFailure(error).status)) void rereadChanges()
      if (!options.quiet || !isThere()) toast(describeFailure(error), 'bad')
    },
    onSettled: (_answer, _error, given) => setPending((before) => before.filter((each) => each !== given)),
  })
  return { ...action, pending }
}

import {
  createTRPCClient,
  httpBatchLink,
  httpLink,
  httpSubscriptionLink,
  splitLink,
  type TRPCClient,
} from '@trpc/client'
import type { inferRouterInputs, inferRouterOutputs } from '@trpc/server'
import { EventSource } from 'eventsource'
import type { AppRouter } from '../router.ts'

export type { ContentBlock, ErrorBody, MessageData } from '../wire.ts'
export type { AppRouter }

/** What procedures take and give: `Outputs['agents']['get']['agent']`. */
export type Inputs = inferRouterInputs<AppRouter>
export type Outputs = inferRouterOutputs<AppRouter>

export type Client = TRPCClient<AppRouter>

/**
 * A client of the service at `url` (its address, without `/trpc`), as the holder of `token`. Queries made in the same
 * moment travel together, ten at most; mutations each by itself, so that none waits for another's answer or shares its
 * limit of 1 MiB. Subscriptions reconnect by themselves and go on behind the last event they had. What the service
 * refuses is thrown as TRPCClientError, the error body in its `data`.
 */
export function createClient({ url, token }: { url: string; token: string }): Client {
  const endpoint = `${url.replace(/\/$/, '')}/trpc`
  const headers = { Authorization: `Bearer ${token}` }
  return createTRPCClient<AppRouter>({
    links: [
      splitLink({
        condition: ({ type }) => type === 'subscription',
        true: httpSubscriptionLink({
          url: endpoint,
          // The browser's own cannot send the token in a header, and it must not stand in the URL.
          EventSource,
          eventSourceOptions: {
            fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, ...headers } }),
          },
        }),
        false: splitLink({
          condition: ({ type }) => type === 'mutation',
          true: httpLink({ url: endpoint, headers }),
          false: httpBatchLink({ url: endpoint, headers, maxItems: 10 }),
        }),
      }),
    ],
  })
}

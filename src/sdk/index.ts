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

/** While it waits to reconnect, `eventsource` lets a process end that has nothing else to do: this one keeps it. */
class LastingEventSource extends EventSource {
  readonly #alive = setInterval(() => {}, 2 ** 31 - 1)

  override close(): void {
    clearInterval(this.#alive)
    super.close()
  }
}

/**
 * A client of the service at `url` (its address, without `/trpc`), as the holder of `token`. Queries made in the same
 * moment travel together, ten at most; mutations each by itself, so that none waits for another's answer or shares its
 * limit of 1 MiB. Subscriptions reconnect by themselves and go on behind the last event they had; they keep the process
 * until they end. What the service refuses is thrown as TRPCClientError, the error body in its `data`.
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
          EventSource: LastingEventSource,
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

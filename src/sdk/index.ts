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

export { TRPCClientError } from '@trpc/client'
export type { ContentBlock, ErrorBody, MessageData } from '../wire.ts'
export type { AppRouter }

/** Inputs of procedures, such as `Inputs['agents']['create']`. */
export type Inputs = inferRouterInputs<AppRouter>
/** Outputs of procedures, such as `Outputs['agents']['get']['agent']`. */
export type Outputs = inferRouterOutputs<AppRouter>

/** A client with the procedures of the service, by router and name. */
export type Client = TRPCClient<AppRouter>

/** Keeps the process alive while it waits to reconnect, unlike `eventsource`. */
class LastingEventSource extends EventSource {
  readonly #alive = setInterval(() => {}, 2 ** 31 - 1)

  override close(): void {
    clearInterval(this.#alive)
    super.close()
  }
}

/**
 * Creates a client of the service at `url` for the holder of `token`. Queries of the same moment travel together, at
 * most ten at a time. Each mutation travels alone, so that none waits for the answer of another. Subscriptions
 * reconnect, continue behind the last event, and keep the process alive until they end. A refused call throws a
 * TRPCClientError with the error body in its `data`.
 *
 * @param options - `url`: address of the service, with or without the path of an API (`/api/v1`, `/trpc`). `token`:
 *   personal access token.
 * @example
 * const muster = createClient({ url: 'http://127.0.0.1:3000', token: process.env.MUSTER_TOKEN ?? '' })
 * const { agents } = await muster.agents.list.query()
 */
export function createClient({ url, token }: { url: string; token: string }): Client {
  const endpoint = `${url.replace(/(?:\/(?:api\/v1|trpc))?\/?$/, '')}/trpc`
  const headers = { Authorization: `Bearer ${token}` }
  return createTRPCClient<AppRouter>({
    links: [
      splitLink({
        condition: ({ type }) => type === 'subscription',
        true: httpSubscriptionLink({
          url: endpoint,
          // A browser's EventSource cannot send the token in a header, and it must not be in the URL.
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

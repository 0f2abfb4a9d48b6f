import { tracked } from '@trpc/server'
import { restMeta, router, tokenProcedure } from '../trpc.ts'
import * as schema from './schema.ts'
import type { FeedEvent } from './service.ts'
import * as service from './service.ts'

export const events = router({
  list: tokenProcedure('webhooks:read')
    .meta(
      restMeta('GET', '/api/v1/events', 'List the events of the last 30 days, oldest first', {
        410: 'Events after the cursor were removed; the detail has the oldest cursor',
      }),
    )
    .input(schema.ListEvents.prefault({}))
    .output(schema.EventsResponse)
    .query(({ ctx, input }) => service.list(ctx.actor, ctx.deps, input)),

  /** A stream without side effects, which clients repeat when they reconnect. */
  follow: tokenProcedure('webhooks:read')
    .input(schema.FollowEvents.prefault({}))
    .subscription(async ({ ctx, input: { lastEventId, ...input } }) => {
      const since = lastEventId ?? input.since
      const batches = await service.follow(ctx.actor, ctx.deps, { ...input, ...(since && { since }) }, ctx.streamTo)
      return trackEach(batches)
    }),
})

/** Adds the ids that clients need to resume. */
async function* trackEach(batches: AsyncIterable<readonly FeedEvent[]>) {
  for await (const events of batches) for (const { id, event } of events) yield tracked(id, event)
}

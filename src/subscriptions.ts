import { isTrackedEnvelope, type TrackedEnvelope, tracked } from '@trpc/server'

/** The value of a subscription: for tRPC one event at a time with the id to resume from, for other APIs in batches. */
type Batched<Event> = AsyncIterable<TrackedEnvelope<Event>> & { batches: AsyncIterable<readonly Event[]> }

/** Makes the value of a subscription. `idOf` returns the id after which a client resumes. */
export const inBatches = <Event>(
  batches: AsyncIterable<readonly Event[]>,
  idOf: (event: Event) => string,
): Batched<Event> => ({ batches, [Symbol.asyncIterator]: () => trackEach(batches, idOf) })

async function* trackEach<Event>(batches: AsyncIterable<readonly Event[]>, idOf: (event: Event) => string) {
  for await (const events of batches) for (const event of events) yield tracked(idOf(event), event)
}

/** Returns the batches of a subscription that a caller has opened. tRPC declares its value without them. */
export function batchesOf<Event>(events: AsyncIterable<{ id: string; data: Event }>): AsyncIterable<readonly Event[]> {
  if (!isBatched(events)) throw new TypeError('The subscription was not made by inBatches')
  return events.batches
}

const isBatched = <Event>(
  events: AsyncIterable<{ id: string; data: Event }>,
): events is AsyncIterable<{ id: string; data: Event }> & Pick<Batched<Event>, 'batches'> => 'batches' in events

/** Yields the events of a subscription that a caller has opened, each with the id after which a client resumes. */
export async function* trackedOf<Event>(
  events: AsyncIterable<{ id: string; data: Event }>,
): AsyncGenerator<{ id: string; data: Event }> {
  for await (const event of events) {
    if (!isTrackedEnvelope<Event>(event)) throw new TypeError('The subscription does not track its events')
    const [id, data] = event
    yield { id, data }
  }
}

/** Yields the events of batches one at a time. */
export async function* eachOf<Event>(batches: AsyncIterable<readonly Event[]>): AsyncGenerator<Event> {
  for await (const events of batches) yield* events
}

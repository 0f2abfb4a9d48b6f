/** Weight of messages that is forgotten in a second: a server may send a request in each, for ever. */
const PER_SECOND = 50

/**
 * Returns a function that adds the weight of a message, and returns whether a server sends too many: more than `most`
 * beyond those that the passing time allows. `now` returns the time (ms).
 */
export function createMeter(most: number, now: () => number = () => performance.now()): (weight: number) => boolean {
  let weight = 0
  let at = now()
  return (added) => {
    const time = now()
    weight = Math.max(0, weight - ((time - at) / 1000) * PER_SECOND) + added
    at = time
    return weight > most
  }
}

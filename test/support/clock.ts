/** A clock that stands still until it is told to go on. */
export type StoppedClock = { now: () => Date; advance: (ms: number) => void; set: (time: string) => void }

export function stopClock(start: string): StoppedClock {
  let time = Date.parse(start)
  return {
    now: () => new Date(time),
    advance(ms) {
      time += ms
    },
    set(to) {
      time = Date.parse(to)
    },
  }
}

import type { Clock } from '../../src/lib/clock.ts'

/** The time, but never the same one twice: what is made later comes later in a list, however fast it was made. */
export function tickingClock(): Clock {
  let last = 0
  return {
    now() {
      last = Math.max(last + 1, Date.now())
      return new Date(last)
    },
  }
}

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

/** The time, which a test can set forward. */
export function movableClock(): Clock & Pick<StoppedClock, 'advance'> {
  let ahead = 0
  return {
    now: () => new Date(Date.now() + ahead),
    advance(ms) {
      ahead += ms
    },
  }
}

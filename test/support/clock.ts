import type { Clock } from '../../src/lib/clock.ts'

/** A clock that never repeats a time, so that lists have the order of creation. */
export function tickingClock(): Clock {
  let last = 0
  return {
    now() {
      last = Math.max(last + 1, Date.now())
      return new Date(last)
    },
  }
}

/** A clock that stands still until a test moves it. */
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

/** The real time, which a test can move forward. */
export function movableClock(): Clock & Pick<StoppedClock, 'advance'> {
  let ahead = 0
  return {
    now: () => new Date(Date.now() + ahead),
    advance(ms) {
      ahead += ms
    },
  }
}

/** Where the time comes from: the machine, or PostgreSQL (db/postgresql/clock.ts); tests give another. */
export type Clock = { now: () => Date }

export const systemClock: Clock = { now: () => new Date() }

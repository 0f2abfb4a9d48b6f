/** Source of the time: the machine, or PostgreSQL (db/postgresql/clock.ts). Tests supply their own. */
export type Clock = { now: () => Date }

export const systemClock: Clock = { now: () => new Date() }

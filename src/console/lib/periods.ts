const DAY = 86_400_000

/** Formats the day of a time in UTC, such as 2026-11-28. */
export const toDate = (time: number): string => new Date(time).toISOString().slice(0, 10)

/** Lists the first days of all periods from one day to another. Weeks begin on Monday, days are those of UTC. */
export function periodsBetween(period: 'daily' | 'weekly' | 'monthly', from: string, to: string): string[] {
  const days: string[] = []
  for (let time = Date.parse(from); time <= Date.parse(to); time += DAY) {
    const date = new Date(time)
    const sinceMonday = (date.getUTCDay() + 6) % 7
    const first = { daily: time, weekly: time - sinceMonday * DAY, monthly: time - (date.getUTCDate() - 1) * DAY }
    days.push(toDate(first[period]))
  }
  return [...new Set(days)]
}

const DAY = 86_400_000

/** Formats the day of a time in UTC, such as 2026-11-28. */
export const toDate = (time: number): string => new Date(time).toISOString().slice(0, 10)

/**
 * Returns the midnight with which a day of the person begins, or a day after it, such as 2026-11-28. Any other text
 * stays the same.
 */
export function midnight(day: string, daysAfter = 0): string {
  const [, year, month, date] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(day) ?? []
  return year ? new Date(Number(year), Number(month) - 1, Number(date) + daysAfter).toISOString() : day
}

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

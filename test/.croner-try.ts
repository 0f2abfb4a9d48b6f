import { Cron } from 'croner'
const t = (e: string, tz: string, from: string, n: number) => {
  let d: Date | null = new Date(from)
  const out: string[] = []
  const c = new Cron(e, { timezone: tz, paused: true })
  for (let i = 0; i < n && d; i++) { d = c.nextRun(d); out.push(d ? d.toISOString().slice(5, 19) : 'null') }
  console.log(e, tz, out.join(' '))
}
t('30 2 * * *', 'Europe/Berlin', '2026-03-27T12:00:00Z', 4)
t('15 2 * * *', 'Europe/Berlin', '2026-03-27T12:00:00Z', 4)
t('0 2 * * *', 'Europe/Berlin', '2026-03-27T12:00:00Z', 4)
t('30 2,3 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z', 4)
t('*/15 * * * *', 'Europe/Berlin', '2026-03-29T00:20:00Z', 8)
t('*/20 2 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z', 8)
t('0 * * * *', 'Europe/Berlin', '2026-03-28T23:20:00Z', 5)
t('30 * * * *', 'Europe/Berlin', '2026-03-28T23:20:00Z', 5)
t('30 2 * * *', 'Europe/Berlin', '2026-10-23T12:00:00Z', 4)
t('*/15 * * * *', 'Europe/Berlin', '2026-10-24T23:40:00Z', 12)
t('*/15 2 * * *', 'Europe/Berlin', '2026-10-24T12:40:00Z', 8)
t('0 * * * *', 'Europe/Berlin', '2026-10-24T22:20:00Z', 5)
t('30 2 * * *', 'America/New_York', '2026-03-06T12:00:00Z', 4)
t('30 1 * * *', 'America/New_York', '2026-10-30T12:00:00Z', 4)
t('0 * * * *', 'America/New_York', '2026-11-01T03:30:00Z', 5)
t('30 2 29 3 *', 'Europe/Berlin', '2026-01-27T12:00:00Z', 3)
t('0 0 31 2 *', 'UTC', '2026-01-27T12:00:00Z', 1)
for (const e of ['0 0 31 2 *', '0 0 29 2 *', '0 0 30 2,4 *', '0 0 * * 8', '60 * * * *', '0 0 L * *', '0 0 15W * *', '0 0 * * MON#2', '0 0 * * MON-FRI', '? * * * *', '*/0 * * * *', '1-0 * * * *', '0 0 1 1 * *', 'a b c d e', '5/15 * * * *', '0 0 0 * *', '0 0 * 13 *', '* * * * * *', '0 0 1,15 * +MON','-1 * * * *','1,,2 * * * *', '0 0 * * 7', '@daily x y z w', '\u00a0* * * * *', '1e1 * * * *', '0x1 * * * *', '*/1.5 * * * *']) {
  const s = performance.now()
  let r: unknown
  try { r = new Cron(e, { timezone: 'UTC', paused: true }).nextRun(new Date('2026-01-01T00:00:00Z'))?.toISOString() ?? null } catch (x) { r = String(x) }
  console.log(JSON.stringify(e), r, Math.round(performance.now() - s) + 'ms')
}
for (const d of ['2026-02-30T10:00:00Z','2026-01-01T24:00:00Z','2026-01-01T25:00:00Z','2026-13-01T00:00Z','2026-01-01T10:00+99:99','2026-01-01T10:00:60Z', '2026-04-31T00:00Z', '0000-01-01T00:00Z','9999-12-31T23:59Z']) console.log(d, String(new Date(d)))
for (const d of ['2026-02-30T10:00:00','2026-01-01T24:00:00','2026-03-29T02:30:00','2026-10-25T02:30:00','2026-03-29T02:00:00','9999-12-31T23:59:00']) { try { console.log(d, new Cron(d, {timezone:'Europe/Berlin', paused:true}).nextRun(new Date(0))?.toISOString()) } catch (x) { console.log(d, String(x)) } }
for (const z of ['+02:00', 'europe/berlin', 'EST5EDT', 'Mars/Phobos', '', 'Etc/GMT+5', 'US/Pacific', 'utc', 'Z', 'GMT+2', ' Europe/Berlin']) { try { console.log(z, new Intl.DateTimeFormat('en', {timeZone: z}).resolvedOptions().timeZone, new Cron('0 0 * * *', {timezone: z, paused: true}).nextRun()?.toISOString()) } catch (x) { console.log(z, String(x)) } }

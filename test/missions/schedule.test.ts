import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { toMoment, toWallClock } from '../../src/lib/wall-clock.ts'
import { checkSchedule, lastDue, nextFire, nextFires, pauseOf, type Schedule } from '../../src/missions/schedule.ts'

const cron = (scheduleValue: string, timezone = 'UTC'): Schedule => ({ scheduleType: 'cron', scheduleValue, timezone })
const once = (scheduleValue: string, timezone = 'UTC'): Schedule => ({ scheduleType: 'once', scheduleValue, timezone })

const BERLIN = 'Europe/Berlin'
const NEW_YORK = 'America/New_York'

/** Formats an instant as `2026-03-29T03:30+02:00`: the local time and its offset from UTC. */
function local(moment: Date, timezone: string): string {
  const wallClock = toWallClock(moment, timezone)
  const offset = (wallClock.getTime() - moment.getTime()) / 3_600_000
  return `${wallClock.toISOString().slice(0, 16)}${offset < 0 ? '-' : '+'}${String(Math.abs(offset)).padStart(2, '0')}`
}

describe('a cron mission at a clock change', () => {
  type Row = [timezone: string, expression: string, from: string, fires: string[]]
  /** A skipped local time fires at the next existing one, a repeated local time once (contract.md section 7). */
  const rows: Row[] = [
    // Europe/Berlin, 29 March 2026: 02:00 is followed by 03:00.
    [BERLIN, '30 2 * * *', '2026-03-28T00:00Z', ['2026-03-28T02:30+01', '2026-03-29T03:00+02', '2026-03-30T02:30+02']],
    [BERLIN, '0 2 * * *', '2026-03-28T12:00Z', ['2026-03-29T03:00+02', '2026-03-30T02:00+02']],
    [BERLIN, '59 1 * * *', '2026-03-28T12:00Z', ['2026-03-29T01:59+01', '2026-03-30T01:59+02']],
    [BERLIN, '0 3 * * *', '2026-03-28T12:00Z', ['2026-03-29T03:00+02', '2026-03-30T03:00+02']],
    [
      BERLIN,
      '30 2,3 * * *',
      '2026-03-28T12:00Z',
      ['2026-03-29T03:00+02', '2026-03-29T03:30+02', '2026-03-30T02:30+02'],
    ],
    [
      BERLIN,
      '*/20 2 * * *',
      '2026-03-28T12:00Z',
      ['2026-03-29T03:00+02', '2026-03-30T02:00+02', '2026-03-30T02:20+02'],
    ],
    [BERLIN, '0 2,3 * * *', '2026-03-28T12:00Z', ['2026-03-29T03:00+02', '2026-03-30T02:00+02']],
    [
      BERLIN,
      '*/30 * * * *',
      '2026-03-29T00:10Z',
      ['2026-03-29T01:30+01', '2026-03-29T03:00+02', '2026-03-29T03:30+02', '2026-03-29T04:00+02'],
    ],
    [BERLIN, '30 2 * * SUN', '2026-03-28T12:00Z', ['2026-03-29T03:00+02', '2026-04-05T02:30+02']],
    [BERLIN, '30 2 29 3 *', '2026-03-28T12:00Z', ['2026-03-29T03:00+02', '2027-03-29T02:30+02']],
    [BERLIN, '15 30 2 * * *', '2026-03-28T12:00Z', ['2026-03-29T03:00+02', '2026-03-30T02:30+02']],
    // 25 October 2026: 03:00 is followed by 02:00.
    [BERLIN, '30 2 * * *', '2026-10-24T12:00Z', ['2026-10-25T02:30+02', '2026-10-26T02:30+01']],
    [BERLIN, '0 2 * * *', '2026-10-24T12:00Z', ['2026-10-25T02:00+02', '2026-10-26T02:00+01']],
    [BERLIN, '0 3 * * *', '2026-10-24T12:00Z', ['2026-10-25T03:00+01', '2026-10-26T03:00+01']],
    [BERLIN, '59 1 * * *', '2026-10-24T12:00Z', ['2026-10-25T01:59+02', '2026-10-26T01:59+01']],
    [
      BERLIN,
      '*/30 * * * *',
      '2026-10-24T23:40Z',
      ['2026-10-25T02:00+02', '2026-10-25T02:30+02', '2026-10-25T02:00+01', '2026-10-25T02:30+01'],
    ],
    [
      BERLIN,
      '0 * * * *',
      '2026-10-24T22:30Z',
      ['2026-10-25T01:00+02', '2026-10-25T02:00+02', '2026-10-25T02:00+01', '2026-10-25T03:00+01'],
    ],
    // Asked from within the repeated hour.
    [BERLIN, '*/30 * * * *', '2026-10-25T01:10Z', ['2026-10-25T02:30+01', '2026-10-25T03:00+01']],
    [BERLIN, '30 2 * * *', '2026-10-25T01:10Z', ['2026-10-26T02:30+01']],
    // America/New_York, 8 March 2026: 02:00 is followed by 03:00.
    [NEW_YORK, '30 2 * * *', '2026-03-07T12:00Z', ['2026-03-08T03:00-04', '2026-03-09T02:30-04']],
    [
      NEW_YORK,
      '*/30 1-3 * * *',
      '2026-03-08T06:10Z',
      ['2026-03-08T01:30-05', '2026-03-08T03:00-04', '2026-03-08T03:30-04', '2026-03-09T01:00-04'],
    ],
    // 1 November 2026: 02:00 is followed by 01:00.
    [NEW_YORK, '30 1 * * *', '2026-10-31T12:00Z', ['2026-11-01T01:30-04', '2026-11-02T01:30-05']],
    [NEW_YORK, '0 2 * * *', '2026-10-31T12:00Z', ['2026-11-01T02:00-05', '2026-11-02T02:00-05']],
    [NEW_YORK, '0 * * * *', '2026-11-01T04:30Z', ['2026-11-01T01:00-04', '2026-11-01T01:00-05', '2026-11-01T02:00-05']],
    // Zones where the day begins at one o'clock, the clock changes by half an hour, or never changes.
    ['Asia/Beirut', '0 0 * * *', '2026-03-27T23:00Z', ['2026-03-29T01:00+03', '2026-03-30T00:00+03']],
    ['Australia/Lord_Howe', '15 2 * * *', '2026-10-03T00:00Z', ['2026-10-04T02:30+11', '2026-10-05T02:15+11']],
    ['UTC', '30 2 * * *', '2026-03-28T12:00Z', ['2026-03-29T02:30+00', '2026-03-30T02:30+00']],
  ]
  it.each(rows)('%s %s from %s', (timezone, expression, from, fires) => {
    const found = nextFires(cron(expression, timezone), new Date(from.replace('Z', ':00Z')), fires.length)
    expect(found.map((fire) => local(fire, timezone))).toEqual(fires)
  })

  it.each([
    ['* * * * * *', '2026-10-25T00:59:59Z', ['01:00:00', '01:00:01']],
    ['*/15 * * * *', '2026-10-25T00:40:00Z', ['00:45:00', '01:00:00', '01:15:00', '01:30:00', '01:45:00', '02:00:00']],
    ['0 * * * *', '2026-10-24T23:30:00Z', ['00:00:00', '01:00:00', '02:00:00']],
    ['*/30 2 * * *', '2026-10-24T23:30:00Z', ['00:00:00', '00:30:00', '01:00:00', '01:30:00']],
    ['0,30 2 * * *', '2026-10-24T23:30:00Z', ['00:00:00', '00:30:00']],
    ['30 2,3 * * *', '2026-10-24T23:30:00Z', ['00:30:00', '02:30:00']],
  ])('%s continues through the repeated hour only if its minute or hour is a star', (value, from, fires) => {
    const found = nextFires(cron(value, BERLIN), new Date(from), fires.length)
    expect(found.map((fire) => fire.toISOString())).toEqual(fires.map((time) => `2026-10-25T${time}.000Z`))
  })

  it.each([
    ['0 0 */2 * 1', ['2026-06-01', '2026-06-15', '2026-06-29']],
    ['0 0 1-7 * */1', ['2026-06-01', '2026-06-02', '2026-06-03']],
    ['0 0 1 * 5', ['2026-06-01', '2026-06-05', '2026-06-12']],
  ])('%s joins day and weekday by AND only if one begins with a star', (value, days) => {
    const found = nextFires(cron(value, 'UTC'), new Date('2026-05-31T12:00:00Z'), days.length)
    expect(found.map((fire) => fire.toISOString().slice(0, 10))).toEqual(days)
  })
})

describe('a mission at a local time', () => {
  it.each([
    ['2026-07-01T09:00', BERLIN, '2026-07-01T07:00:00.000Z'],
    ['2026-07-01T09:00:30', NEW_YORK, '2026-07-01T13:00:30.000Z'],
    ['2026-07-01T09:00:30.250', 'UTC', '2026-07-01T09:00:30.250Z'],
    ['2026-07-01T09:00:30.250999999', 'UTC', '2026-07-01T09:00:30.250Z'],
    ['2026-07-01T09:00:30.250999+0200', 'UTC', '2026-07-01T07:00:30.250Z'],
    ['2026-07-01T09:00Z', BERLIN, '2026-07-01T09:00:00.000Z'],
    ['2026-07-01 09:00:00', BERLIN, '2026-07-01T07:00:00.000Z'],
    ['2026-07-01t09:00z', BERLIN, '2026-07-01T09:00:00.000Z'],
    ['2026-07-01T09:00:00-03:30', BERLIN, '2026-07-01T12:30:00.000Z'],
    ['2026-03-29T02:30', BERLIN, '2026-03-29T01:00:00.000Z'],
    ['2026-10-25T02:30', BERLIN, '2026-10-25T00:30:00.000Z'],
    ['2026-03-08T02:00', NEW_YORK, '2026-03-08T07:00:00.000Z'],
    ['2026-11-01T01:30', NEW_YORK, '2026-11-01T05:30:00.000Z'],
    ['2028-02-29T00:00', 'UTC', '2028-02-29T00:00:00.000Z'],
  ])('%s in %s is %s', (value, timezone, moment) => {
    expect(nextFire(once(value, timezone), new Date(0))?.toISOString()).toBe(moment)
    expect(nextFire(once(value, timezone), new Date(moment))).toBeNull()
  })
})

const ZONES = [BERLIN, NEW_YORK, 'Asia/Kolkata', 'Australia/Lord_Howe', 'America/Sao_Paulo', 'Asia/Beirut', 'UTC']
const moments = fc.date({
  min: new Date('2015-01-01T00:00:00Z'),
  max: new Date('2035-01-01T00:00:00Z'),
  noInvalidDate: true,
})

describe('local time', () => {
  it('is the first instant at which the clock shows it, for reading and for writing', () => {
    fc.assert(
      fc.property(moments, fc.constantFrom(...ZONES), (date, timezone) => {
        const moment = new Date(Math.floor(date.getTime() / 1000) * 1000)
        const found = toMoment(toWallClock(moment, timezone), timezone)
        expect(found <= moment).toBe(true)
        expect(toWallClock(found, timezone)).toEqual(toWallClock(moment, timezone))
        expect(toWallClock(new Date(found.getTime() - 1000), timezone) < toWallClock(found, timezone)).toBe(true)
      }),
      { numRuns: 500 },
    )
  })
})

describe('fire times', () => {
  const expressions = fc.constantFrom(
    '*/7 * * * *',
    '30 2 * * *',
    '0 2-3 * * 0',
    '13 */5 * * *',
    '*/20 2 * * *',
    '0 0 1 * *',
  )
  const FORTNIGHT = 14 * 24 * 60 * 60 * 1000

  it('increase, match the expression, and omit no match', () => {
    fc.assert(
      fc.property(moments, fc.constantFrom(...ZONES), expressions, (from, timezone, expression) => {
        const fires = nextFires(cron(expression, timezone), from, 5)
        for (const [index, fire] of fires.entries()) {
          expect(fire > (fires[index - 1] ?? from)).toBe(true)
          const before = new Date(fire.getTime() - 1000)
          expect(nextFire(cron(expression, timezone), before < from ? from : before)).toEqual(fire)
        }
      }),
      { numRuns: 200 },
    )
  })

  it('the last due one equals the end of a walk from one to the next', () => {
    const spans = fc.integer({ min: 0, max: FORTNIGHT })
    fc.assert(
      fc.property(moments, spans, fc.constantFrom(...ZONES), expressions, (from, span, timezone, expression) => {
        const schedule = cron(expression, timezone)
        const due = nextFire(schedule, from)!
        const now = new Date(due.getTime() + span)
        let last = due
        for (let next = nextFire(schedule, last); next && next <= now; next = nextFire(schedule, last)) last = next
        expect(lastDue(schedule, due, now)).toEqual(last)
      }),
      { numRuns: 60 },
    )
  })

  it('the last one of ten years of seconds is found without counting them', () => {
    const due = new Date('2016-01-01T00:00:00Z')
    expect(lastDue(cron('* * * * * *', BERLIN), due, new Date('2026-01-01T00:00:00.500Z')).toISOString()).toBe(
      '2026-01-01T00:00:00.000Z',
    )
  })

  it('are absent for missions that run by hand or when the last run ends', () => {
    const now = new Date('2026-01-01T00:00:00Z')
    for (const scheduleType of ['none', 'continuous'] as const) {
      expect(nextFire({ scheduleType, scheduleValue: '60', timezone: 'UTC' }, now)).toBeNull()
    }
  })
})

describe('an invalid schedule', () => {
  const now = new Date('2026-01-01T00:00:00Z')
  const refused = (what: string) => `Invalid value for field: schedule.value. Expected ${what}`
  const FIELDS = refused('a cron expression of five or six fields')
  const DATE = refused('an ISO 8601 date and time')
  const FUTURE = refused('a date in the future')
  const SECONDS = refused('seconds from 1 to 2592000')
  const ZONE = 'Invalid value for field: schedule.timezone. Expected an IANA timezone, like Europe/Berlin'

  type Row = [type: Schedule['scheduleType'], value: string | null, message: string | RegExp]
  const rows: Row[] = [
    ...[
      null,
      '',
      ' ',
      '@daily',
      '@hourly',
      '@reboot',
      '* * * *',
      '*',
      '0 0 0 1 1 * 2030',
      '* * * * * * *',
      '2030-01-01T00:00:00Z',
    ].map((value): Row => ['cron', value, FIELDS]),
    ...[
      '60 * * * *',
      '* 24 * * *',
      '* * 0 * *',
      '* * 32 * *',
      '* * * 13 *',
      '* * * * 8',
      '-1 * * * *',
      'a b c d e',
      '*/0 * * * *',
      '5-1 * * * *',
      '1,,2 * * * *',
      '1.5 * * * *',
      '1e1 * * * *',
      '0x1 * * * *',
      '* * * FOO *',
      '60 * * * * *',
      '@daily * * * *',
      "'; DROP TABLE",
      '🕛 * * * *',
      '*/61 * * * *',
    ].map((value): Row => ['cron', value, /^Invalid value for field: schedule\.value\. Expected a cron expression/]),
    ...[
      ['* * 0 * *', 'day: 0'],
      ['* * 32 * *', 'day: 32'],
      ['* * * 13 *', 'month: 13'],
      ['60 * * * *', 'minute: 60'],
    ].map(([value, wrong]): Row => ['cron', value!, refused(`a cron expression. Invalid value for ${wrong}`)]),
    ['cron', '0 0 31 2 *', refused('a cron expression with at least one fire time')],
    ['cron', '0 0 30 2 *', refused('a cron expression with at least one fire time')],
    ...[
      null,
      '',
      'tomorrow',
      '2030-01-01',
      '09:00',
      '2030-13-01T00:00',
      '2030-02-30T00:00',
      '2030-02-29T00:00Z',
      '2030-04-31T00:00',
      '2030-01-01T24:00',
      '2030-01-01T25:00',
      '2030-01-01T00:60',
      '2030-01-01T00:00+25:00',
      '2030-01-01  00:00',
      '20300101T000000',
      '1767225600000',
      '2030-01-01T00:00Z; 2031',
      ' 2030-01-01T00:00Z',
      '+002030-01-01T00:00Z',
      '* * * * *',
    ].map((value): Row => ['once', value, DATE]),
    ...[
      '2026-01-01T00:00:00Z',
      '2025-12-31T23:59:59',
      '2026-01-01T01:00:00+01:00',
      '0001-01-01T00:00',
      '0001-01-01T00:00+14:00',
      '0000-01-01T00:00Z',
      '1970-01-01T00:00Z',
    ].map((value): Row => ['once', value, FUTURE]),
    ...['', '0', '-5', '1.5', '60s', '2592001', '99999999999', '1e3', ' 60', '* * * * *'].map(
      (value): Row => ['continuous', value, SECONDS],
    ),
  ]
  it.each(rows)('%s %j is refused with the reason', (scheduleType, scheduleValue, message) => {
    expect(() => checkSchedule({ scheduleType, scheduleValue, timezone: 'UTC' }, now)).toThrow(message)
  })

  it.each([
    [null, 'This one has none.'],
    [' ', 'This one has none.'],
    ['@daily', 'Send `0 0 * * *` instead of @daily.'],
    ['@reboot', 'This one has 1.'],
  ])('as %j is refused with its number of fields, or the expression that it names: %s', (value, detail) => {
    const refused = () => checkSchedule({ scheduleType: 'cron', scheduleValue: value, timezone: 'UTC' }, now)
    expect(refused).toThrow(expect.objectContaining({ detail: expect.stringContaining(detail) }))
  })

  it.each([
    '',
    'Mars/Phobos',
    'Berlin',
    'CET+1',
    '+02:00',
    '-0330',
    'Z',
    'GMT+2',
    ' UTC',
    'Europe/Berlin\n',
    '../etc/localtime',
    'constructor',
  ])('an invalid schedule with the timezone %j is refused', (timezone) => {
    for (const schedule of [cron('* * * * *', timezone), once('2030-01-01T00:00', timezone)]) {
      expect(() => checkSchedule(schedule, now)).toThrow(ZONE)
    }
  })

  it('is not one of these valid schedules', () => {
    const good = [
      '* * * * *',
      '*/5 * * * * *',
      ' 0  8 * * MON-FRI ',
      '0 0 L * *',
      '0 0 29 2 *',
      '0,30 8-18/2 * JAN,jul 1-5',
      '59 59 23 31 12 7',
    ]
    for (const value of good) expect(() => checkSchedule(cron(value, BERLIN), now), value).not.toThrow()
    for (const timezone of ['UTC', 'utc', 'Etc/GMT+5', 'America/Argentina/Buenos_Aires', 'EST5EDT', 'US/Pacific']) {
      expect(() => checkSchedule(cron('0 0 * * *', timezone), now), timezone).not.toThrow()
    }
    for (const value of ['1', '60', '2592000', null]) {
      expect(() =>
        checkSchedule({ scheduleType: 'continuous', scheduleValue: value, timezone: 'UTC' }, now),
      ).not.toThrow()
    }
  })
})

describe('a continuous mission that fails', () => {
  it('pauses no longer than an hour, or for its own pause if that is longer', () => {
    const pauses = (scheduleValue: string) =>
      [0, 1, 9].map((failureCount) =>
        pauseOf({ scheduleType: 'continuous', scheduleValue, timezone: 'UTC', failureCount }),
      )
    expect(pauses('60')).toEqual([60, 120, 3600])
    expect(pauses('7200')).toEqual([7200, 7200, 7200])
  })
})

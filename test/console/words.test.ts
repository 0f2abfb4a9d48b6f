import { expect, onTestFinished, test, vi } from 'vitest'
import { cronInWords } from '../../src/console/features/missions/cron.ts'
import { withNewest } from '../../src/console/features/runs/newest.ts'
import { moment, ownTimeZone, pretty } from '../../src/console/lib/format.ts'
import { newId } from '../../src/console/lib/id.ts'
import { withLineEnds } from '../../src/console/lib/line-ends.ts'
import { toFraction, toNumber } from '../../src/console/lib/number.ts'
import { midnight, periodsBetween } from '../../src/console/lib/periods.ts'
import { inPageWords, refusalIn } from '../../src/console/lib/refusals.ts'

test.each<[expression: string, words: string | null]>([
  ['* * * * *', 'Every minute'],
  ['*/15 * * * *', 'Every 15 minutes'],
  ['0 * * * *', 'Every hour'],
  ['0 */6 * * *', 'Every 6 hours'],
  ['5 * * * *', 'Every hour at 05 past'],
  ['0 8 * * *', 'Every day at 08:00'],
  ['30 8,12,17 * * *', 'Every day at 08:30, 12:30 and 17:30'],
  ['0 8 * * 1-5', 'Monday to Friday at 08:00'],
  ['0 16 * * 5', 'Every Friday at 16:00'],
  ['0 9 * * 0,6', 'Sunday and Saturday at 09:00'],
  ['0 9 * * 7', 'Every Sunday at 09:00'],
  ['0 8 1 * *', 'Day 1 of each month at 08:00'],
  ['0 8 1,15 * *', 'Days 1, 15 of each month at 08:00'],
  // Forms without words: a step that does not divide the hour, both kinds of days, months, seconds, names.
  ['*/7 * * * *', null],
  ['0 8 1 * 1', null],
  ['0 8 1 6 *', null],
  ['0 0 8 * * *', null],
  ['0 8 * * MON', null],
  ['every day', null],
  // Values that no schedule may have.
  ['0 8 * * 5-1', null],
  ['0 22-2 * * *', null],
  ['99 8 * * *', null],
])('the schedule %s is %s in words', (expression, words) => {
  expect(cronInWords(expression)).toBe(words)
})

test.each([
  ['Missing required field: name', 'name', 'This field is required.'],
  ['Invalid value for field: maxTurns. Expected integer', 'maxTurns', 'Enter a whole number.'],
  ['Invalid value for field: a.topP. Expected at most 1', 'a.topP', 'At most 1.'],
  ['Invalid value for field: name. Expected at most 200 characters', 'name', 'At most 200 characters.'],
  ['Invalid value for field: events. Expected at least 1 item', 'events', 'Choose at least one.'],
  ['Invalid value for field: email. Expected an e-mail address', 'email', 'It must be an e-mail address.'],
  ['Invalid url. Must be an http or https address', 'url', 'It must be an http or https address.'],
  ['Invalid secret name. Must be upper case', 'name', 'It must be upper case.'],
  ['Missing required field: headers.X-Größe', 'headers.X-Größe', 'This field is required.'],
  ['Invalid value for field: 0._id. Expected integer', '0._id', 'Enter a whole number.'],
  ['Invalid path', 'path', 'This value is not accepted.'],
])('a page says in its own words why the API refuses a value: %s', (message, field, reason) => {
  expect(refusalIn(message, null)).toEqual({ field, reason })
})

test('a message that names no field is no refusal of one', () => {
  expect(refusalIn('Skill name already exists', 'Choose another name.')).toBeNull()
})

test.each([
  ['Execution not found', 'Run not found'],
  ['Execution was cancelled', 'Run was cancelled'],
  ['Cannot cancel execution with status: completed', 'This run cannot be cancelled'],
  ['MCP not found', 'MCP server not found'],
  ['Execution plan not found', 'Execution plan not found'],
])('a page has its own names of things in messages of the API: %s', (message, words) => {
  expect(inPageWords(message)).toBe(words)
})

test('a chart has each day, each Monday or each first of a month, across years and leap days', () => {
  expect(periodsBetween('daily', '2028-02-28', '2028-03-01')).toEqual(['2028-02-28', '2028-02-29', '2028-03-01'])
  expect(periodsBetween('weekly', '2026-12-30', '2027-01-04')).toEqual(['2026-12-28', '2027-01-04'])
  expect(periodsBetween('monthly', '2026-12-31', '2027-02-01')).toEqual(['2026-12-01', '2027-01-01', '2027-02-01'])
})

test('ids are unique', () => {
  const ids = Array.from({ length: 100 }, newId)
  expect(new Set(ids).size).toBe(100)
})

test('a day begins at midnight of the person, and the day after it at the next one', () => {
  expect(midnight('2026-12-31')).toBe(new Date(2026, 11, 31).toISOString())
  expect(midnight('2026-12-31', 1)).toBe(new Date(2027, 0, 1).toISOString())
  for (const other of ['', '2026-12-31T10:00:00Z']) expect(midnight(other, 1)).toBe(other)
})

test('a field with a text that is no number sends the text, which the API refuses', () => {
  const texts = ['', ' ', '0', ' 7 ', '1.5', 'ten', 'Infinity']
  expect(texts.map(toNumber)).toEqual([undefined, undefined, 0, 7, 1.5, 'ten', 'Infinity'])
})

test('a field for a fraction takes a decimal comma, and no comma between thousands', () => {
  expect(['0,7', ' 1,25 ', ',5', '0.7', '1,000,000', 'a,5'].map(toFraction)).toEqual([
    ...[0.7, 1.25, 0.5, 0.7],
    ...['1,000,000', 'a,5'],
  ])
  expect(toNumber('128,000')).toBe('128,000')
})

test('the input of a call shows the signs that would change the order of its letters', () => {
  const input = { command: 'rm -rf \u202e# txt.\u202c a \u2066b\u2069 שלום' }
  expect(pretty(input)).toBe('{\n  "command": "rm -rf \\u202e# txt.\\u202c a \\u2066b\\u2069 שלום"\n}')
  expect(JSON.parse(pretty(input))).toEqual(input)
})

test('a browser without the rules of a time zone writes its moments in UTC, and says so', () => {
  const at = '2026-12-01T10:30:00Z'
  expect(moment(at, 'No/Where')).toBe(`${moment(at, 'UTC')} UTC`)
  expect(moment(at, 'Asia/Kolkata')).not.toBe(moment(at, 'UTC'))
  onTestFinished(() => void vi.restoreAllMocks())
  const options = new Intl.DateTimeFormat().resolvedOptions()
  const zone = vi.spyOn(Intl.DateTimeFormat.prototype, 'resolvedOptions')
  zone.mockReturnValue({ ...options, timeZone: 'Etc/Unknown' })
  expect(ownTimeZone()).toBe('UTC')
  zone.mockReturnValue({ ...options, timeZone: 'Asia/Kolkata' })
  expect(ownTimeZone()).toBe('Asia/Kolkata')
})

test('a file from Windows keeps its line ends when a field of a page has changed it', () => {
  expect(withLineEnds('One\r\nTwo\r\n', 'One\nTwo\nThree\n')).toBe('One\r\nTwo\r\nThree\r\n')
  expect(withLineEnds('One\nTwo\r\n', 'One\nTwo\n')).toBe('One\nTwo\n')
  expect(withLineEnds('', 'One\nTwo')).toBe('One\nTwo')
})

type Run = { id: string; createdAt: string }

test('a list of runs has the newest ones, and none that fits its filter no more', () => {
  const runs = [9, 8, 7, 6, 5, 4].map((minute) => ({ id: `run-${minute}`, createdAt: `2026-12-01T10:0${minute}:00Z` }))
  const ids = (...minutes: number[]) => minutes.map((minute) => `run-${minute}`)
  const [nine, eight, seven, six] = runs as [Run, Run, Run, Run, Run, Run]
  const after = (executions: Run[], nextCursor: string | null) =>
    withNewest(runs.slice(1), { executions, nextCursor }).map(({ id }) => id)
  expect(withNewest(runs, undefined)).toEqual(runs)
  expect(after([nine, seven], 'more')).toEqual(ids(9, 7, 6, 5, 4))
  expect(after([nine, seven], null)).toEqual(ids(9, 7))
  expect(after([seven, six], 'more')).toEqual(ids(8, 7, 6, 5, 4))
  expect(after([eight], 'more')).toEqual(ids(8, 7, 6, 5, 4))
  expect(after([], null)).toEqual([])
})

import { existsSync, openSync } from 'node:fs'
import { expect, test } from 'vitest'
import { createDestination, createLog } from '../src/lib/log.ts'

const failing = (code: string) => () => {
  throw Object.assign(new Error(code), { code })
}

test('lines that cannot be written are dropped, and counted before the next line that succeeds', () => {
  const written: string[] = []
  const outcomes = [failing('ENOSPC'), failing('EPIPE')]
  const log = createLog(
    'info',
    createDestination(1, (_, bytes) => {
      outcomes.shift()?.()
      written.push(String(bytes))
      return bytes.length
    }),
  )
  for (const text of ['one', 'two', 'three', 'four']) log.info(text)
  const lines = written
    .join('')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  expect(lines).toMatchObject([{ level: 40, lost: 2, reason: 'EPIPE' }, { msg: 'three' }, { msg: 'four' }])
})

test('a partially written line is ended before the next', () => {
  const written: string[] = []
  const outcomes: (number | null)[] = [5, null]
  const destination = createDestination(1, (_, bytes) => {
    const length = outcomes.length ? outcomes.shift()! : bytes.length
    if (length === null) failing('ENOSPC')()
    written.push(String(bytes.subarray(0, length)))
    return length
  })
  destination.write('0123456789\n')
  destination.write('next\n')
  expect(written.join('')).toMatch(/^01234\n\{.*"lost":1.*\}\nnext\n$/)
})

test('a full pipe is retried', () => {
  const outcomes = [failing('EAGAIN'), failing('EAGAIN')]
  let written = ''
  createDestination(1, (_, bytes) => {
    outcomes.shift()?.()
    written += String(bytes)
    return bytes.length
  }).write('line\n')
  expect(written).toBe('line\n')
})

test('a reader that has stopped costs the waits of one line', () => {
  let tried = 0
  const destination = createDestination(1, () => {
    tried++
    return failing('EAGAIN')()
  })
  destination.write('one\n')
  const first = tried
  destination.write('two\n')
  expect([first, tried]).toEqual([11, 12])
})

test.runIf(existsSync('/dev/full'))('a full disk does not stop the caller', () => {
  const log = createLog('info', createDestination(openSync('/dev/full', 'w')))
  expect(() => log.info('lost')).not.toThrow()
})

test('of an error it has the reasons and codes, and nothing that a library has added to it', () => {
  const lines: string[] = []
  const log = createLog('info', { write: (line) => void lines.push(line) })
  const refused = Object.assign(new Error('Refused'), { code: 'E403', body: 'canary', cause: { token: 'canary' } })
  log.error({ err: new AggregateError([refused, new Error('Away', { cause: refused })], 'Both failed') }, 'x')
  expect(lines.join()).not.toContain('canary')
  const errors = [{ message: 'Refused', code: 'E403' }, { message: 'Away: Refused' }]
  expect(JSON.parse(lines[0]!).err).toMatchObject({ message: 'Both failed', aggregateErrors: errors })
})

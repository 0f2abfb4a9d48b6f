import { describe, expect, it } from 'vitest'
import { readSettings } from '../src/settings.ts'

const TIMERS = [
  ...['EXECUTION_TIMEOUT', 'MODEL_IDLE_TIMEOUT', 'TOOL_TIMEOUT', 'LEASE_DURATION', 'SHUTDOWN_DELAY', 'DRAIN_TIMEOUT'],
] as const

describe('a setting that is', () => {
  it.each(TIMERS)('a timer is at most as long as one can be: %s', (name) => {
    expect(readSettings({ [name]: '2147483' })).toMatchObject({ [name]: 2_147_483_000 })
    expect(() => readSettings({ [name]: '2592000' })).toThrow(`  ${name}: must be at most 2147483 seconds`)
  })

  it.each(['APPROVAL_TIMEOUT', 'QUEUE_TIMEOUT'])(
    'a date may lie far ahead, and is one that can be told: %s',
    (name) => {
      expect(readSettings({ [name]: '2592000' })).toMatchObject({ [name]: 2_592_000_000 })
      expect(() => readSettings({ [name]: '1e12' })).toThrow(`  ${name}: must be at most 3153600000 seconds`)
    },
  )

  it.each([
    ['MAX_RUNNING', '3000000000'],
    ['MAX_RUNNING_PER_ORGANIZATION', '3000000000'],
    ['MAX_PENDING_RUNS', '3000000000'],
    ['EVENT_RETENTION_DAYS', '1e9'],
  ])('a number is at most what the databases can tell: %s', (name, value) => {
    expect(() => readSettings({ [name]: value })).toThrow(`  ${name}: `)
  })

  it('a duration is whole milliseconds', () => {
    expect(readSettings({ TOOL_TIMEOUT: '1.0005', DRAIN_TIMEOUT: '0.00001' })).toMatchObject({
      TOOL_TIMEOUT: 1_001,
      DRAIN_TIMEOUT: 1,
    })
  })
})

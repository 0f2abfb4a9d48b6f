import assert from 'node:assert/strict'
import { ownPage, request } from '../support/rest.ts'
import { createRandom, createSubject } from './service.ts'

export type EnumerationReport = { tries: number; medians: Record<string, number>; percent: number; ms: number }

/** Maximum difference of the medians (contract-2.md section 3.2). */
const MAX_PERCENT = 5
const MAX_MS = 2
/** Rounds in which the machine may be busy with other work. */
const ROUNDS = 3

/**
 * Tries wrong passwords of an account, of an account without a password and of unknown addresses, in random order. The
 * medians of their times must be the same. Each try comes from an address of its own, so that no limit ends it.
 */
export async function enumeration(tries: number): Promise<EnumerationReport> {
  await using subject = await createSubject({ TRUST_PROXY: 'true' })
  const { profile } = (await request(subject, 'GET', '/api/v1/profile')).body
  const invite = async (email: string, password?: string) => {
    const path = `/api/v1/organizations/${profile.organization.id}/invitations`
    const { url } = (await request(subject, 'POST', path, { body: { email, role: 'member' } })).body
    const body = { code: url.split('#')[1], name: 'Ada', password }
    assert.equal((await request(subject, 'POST', '/api/auth/accept', { body, token: null })).status, 200)
    return email
  }
  const account = await invite('account@example.com', 'eleven blue kettles sing')
  const without = await invite('without@example.com')
  let count = 0
  const addresses: Record<string, () => string> = {
    account: () => account,
    'account without a password': () => without,
    'unknown address': () => `unknown-${++count}@example.com`,
  }
  let client = 0
  const time = async (email: string) => {
    const n = ++client
    const headers = { ...ownPage(subject), 'X-Forwarded-For': `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}` }
    const started = performance.now()
    const { status } = await request(subject, 'POST', '/api/auth/login', {
      body: { email, password: 'wrong' },
      token: null,
      headers,
    })
    assert.equal(status, 401)
    return performance.now() - started
  }
  const random = createRandom(1)
  const names = Object.keys(addresses)
  for (let round = 1; ; round++) {
    const times: Record<string, number[]> = Object.fromEntries(names.map((name) => [name, []]))
    for (let index = 0; index < tries; index++) {
      for (const name of names.toSorted(() => random() - 0.5)) times[name]!.push(await time(addresses[name]!()))
    }
    const medians = Object.fromEntries(names.map((name) => [name, median(times[name]!)]))
    const [least, most] = [Math.min(...Object.values(medians)), Math.max(...Object.values(medians))]
    const report = { tries, medians, percent: (most / least - 1) * 100, ms: most - least }
    if (report.percent < MAX_PERCENT && report.ms < MAX_MS) return report
    assert(round < ROUNDS, `the time tells which addresses have accounts: ${JSON.stringify(report)}`)
  }
}

const median = (numbers: number[]): number => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]!

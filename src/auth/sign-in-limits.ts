import { isIPv6 } from 'node:net'
import type { Db } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { rateLimited } from '../errors.ts'
import { tokenDigest } from '../lib/token.ts'

/** Time for which a failure counts (ms). */
const WINDOW = 15 * 60_000
/** Maximum number of failures in that time: of one account from one IP address, and of one IP address. */
const MAX_OF_ACCOUNT = 5
const MAX_OF_ADDRESS = 20

/** The same for an account and an address, so that it does not tell whether an account exists. */
const TOO_MANY_FAILURES =
  'Too many attempts to sign in from this address have failed. Wait, or ask the operator for a sign-in link.'

/** Groups the IP addresses that one client controls: an IPv6 client has a /64. */
export function networkOf(address: string | undefined): string {
  const plain = (address ?? '')
    .replace(/^::ffff:(?=\d+\.)/i, '')
    .replace(/%.*$/, '')
    .slice(0, 100)
    .toLowerCase()
  if (!isIPv6(plain)) return plain
  const [before = '', after] = plain.split('::')
  const [first, last] = [before, after ?? ''].map((part) => (part ? part.split(':') : []))
  const missing = after === undefined ? 0 : 8 - first!.length - last!.length
  const groups = [...first!, ...Array<string>(Math.max(0, missing)).fill('0'), ...last!]
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')
}

/** An attempt to sign in, which counts as failed until {@link forgive}. */
export type Attempt = { keys: readonly string[]; at: number }

/**
 * Counts an attempt before it is checked, so that concurrent attempts on any number of servers stay within the limits.
 * Throws 429 with the seconds to wait after too many failures (contract-2.md section 3.2).
 */
export async function countAttempt(
  { db, clock, sessionKey }: Pick<Deps, 'db' | 'clock' | 'sessionKey'>,
  email: string,
  address: string | undefined,
): Promise<Attempt> {
  const network = networkOf(address)
  const limits = [
    { key: tokenDigest(sessionKey, `account ${network} ${email}`), max: MAX_OF_ACCOUNT },
    { key: tokenDigest(sessionKey, `address ${network}`), max: MAX_OF_ADDRESS },
  ].sort((a, b) => (a.key < b.key ? -1 : 1))
  return db.$transaction(async (tx) => {
    const at = clock.now().getTime()
    const expiresAt = new Date(at + WINDOW)
    const counted = []
    for (const { key, max } of limits) {
      // The upsert locks the row until the transaction ends.
      const row = { key, times: [], expiresAt }
      const { times } = await tx.signInLimit.upsert({ where: { key }, create: row, update: { expiresAt } })
      const recent = (times as number[]).filter((time) => time > at - WINDOW).toSorted((a, b) => a - b)
      if (recent.length >= max)
        throw rateLimited(Math.ceil((recent.at(-max)! + WINDOW - at) / 1000), { detail: TOO_MANY_FAILURES })
      counted.push({ key, times: [...recent, at] })
    }
    for (const { key, times } of counted) await tx.signInLimit.updateMany({ where: { key }, data: { times } })
    return { keys: counted.map(({ key }) => key), at }
  })
}

/** Removes a successful attempt from the failures. */
export async function forgive(db: Db, { keys, at }: Attempt): Promise<void> {
  await db.$transaction(async (tx) => {
    for (const key of keys) {
      // Writing the key anew locks the row.
      const { count } = await tx.signInLimit.updateMany({ where: { key }, data: { key } })
      if (!count) continue
      const row = await tx.signInLimit.findUnique({ where: { key } })
      const times = (row?.times ?? []) as number[]
      const index = times.indexOf(at)
      await tx.signInLimit.updateMany({ where: { key }, data: { times: times.filter((_, place) => place !== index) } })
    }
  })
}

import { createHmac, type KeyObject } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { randomBase62, toBase62 } from './id.ts'

const BODY = /^([0-9A-Za-z]{30})([0-9A-Za-z]{6})$/

const checksum = (random: string) => toBase62(crc32(random), 6)

/** Creates a token: `<prefix>_` + 30 random base62 characters + 6 of checksum (contract.md section 0). */
export function newToken(prefix: string): string {
  const random = randomBase62(30)
  return `${prefix}_${random}${checksum(random)}`
}

/** Returns whether the checksum matches, so that a mistyped token is rejected without a query. */
export function isWellFormed(token: string, prefix: string): boolean {
  if (!token.startsWith(`${prefix}_`)) return false
  const [, random, check] = BODY.exec(token.slice(prefix.length + 1)) ?? []
  return random !== undefined && check === checksum(random)
}

/** Returns the stored digest of a token. */
export const tokenDigest = (key: KeyObject, token: string): string =>
  createHmac('sha256', key).update(token).digest('base64url')

/** Returns the part of a token by which a person recognizes it. */
export const tokenPreview = (token: string): string => `${token.slice(0, token.indexOf('_') + 5)}…`

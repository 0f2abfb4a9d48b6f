import crypto from 'node:crypto'
import { promisify } from 'node:util'
import { unavailable } from '../errors.ts'

// Passwords (contract-2.md section 3.2): argon2id if this Node supports it, otherwise scrypt, both in the PHC string
// format.

/** Minimum and maximum length of a password (characters). */
export const MIN_PASSWORD = 12
export const MAX_PASSWORD = 1_000

/** Maximum number of concurrent hashes, and of callers that wait for one: each hash takes 19 MiB for 20 ms. */
const MAX_HASHES = 2
const MAX_WAITING = 200

/** Parameters of argon2id (OWASP's first choice), memory in KiB; and of scrypt. */
const ARGON2 = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 }
const SCRYPT = { N: 2 ** 15, r: 8, p: 3, maxmem: 64 * 1024 * 1024 }
const SALT_BYTES = 16

let running = 0
const waiting: (() => void)[] = []

/** Waits for capacity to hash. Throws 503 if too many callers wait already. */
async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (waiting.length >= MAX_WAITING)
    throw unavailable(undefined, 'Too many people are signing in at once. Repeat the request in a moment.')
  if (running >= MAX_HASHES) await new Promise<void>((resolve) => waiting.push(resolve))
  else running++
  try {
    return await work()
  } finally {
    const next = waiting.shift()
    if (next) next()
    else running--
  }
}

/** Normalizes a password, because keyboards compose letters differently. */
export const normalized = (password: string): string => password.normalize('NFKC')

const scrypt = promisify<string, Buffer, number, crypto.ScryptOptions, Buffer>(crypto.scrypt)

const argon2 = (message: string, nonce: Buffer, { memory, passes, parallelism, tagLength } = ARGON2) =>
  new Promise<Buffer>((resolve, reject) => {
    const parameters = { message, nonce, memory, passes, parallelism, tagLength }
    crypto.argon2('argon2id', parameters, (error, key) => (error ? reject(error) : resolve(key)))
  })

const hasArgon2 = typeof crypto.argon2 === 'function'
const toText = (bytes: Buffer): string => bytes.toString('base64').replace(/=+$/, '')

/** Hashes a password for storage. Throws 503 if too many callers wait already. */
export const hashPassword = (password: string): Promise<string> =>
  inTurn(async () => {
    const salt = crypto.randomBytes(SALT_BYTES)
    if (hasArgon2) {
      const { memory, passes, parallelism } = ARGON2
      const tag = await argon2(normalized(password), salt)
      return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${toText(salt)}$${toText(tag)}`
    }
    const tag = await scrypt(normalized(password), salt, ARGON2.tagLength, SCRYPT)
    return `$scrypt$ln=${Math.log2(SCRYPT.N)},r=${SCRYPT.r},p=${SCRYPT.p}$${toText(salt)}$${toText(tag)}`
  })

const HASH = /^\$(argon2id\$v=19|scrypt)\$([\w=,]+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/

/**
 * Returns whether a password matches a hash. Without a hash it takes the same time and returns false, so that the time
 * reveals no accounts. Throws 503 if too many callers wait already.
 */
export const isPassword = (password: string, hash: string | null): Promise<boolean> =>
  inTurn(async () => {
    const [, scheme, parameters = '', salt = '', tag = ''] = HASH.exec(hash ?? '') ?? []
    if (!scheme) {
      const noSalt = Buffer.alloc(SALT_BYTES)
      await (hasArgon2
        ? argon2(normalized(password), noSalt)
        : scrypt(normalized(password), noSalt, ARGON2.tagLength, SCRYPT))
      return false
    }
    const of = Object.fromEntries(parameters.split(',').map((pair) => pair.split('='))) as Record<string, string>
    const [nonce, expected] = [Buffer.from(salt, 'base64'), Buffer.from(tag, 'base64')]
    const { m, t, p, ln, r } = of
    const length = { tagLength: expected.length, parallelism: Number(p) }
    const actual = await (scheme === 'scrypt'
      ? scrypt(normalized(password), nonce, expected.length, {
          ...SCRYPT,
          N: 2 ** Number(ln),
          r: Number(r),
          p: Number(p),
        })
      : argon2(normalized(password), nonce, { memory: Number(m), passes: Number(t), ...length }))
    return crypto.timingSafeEqual(actual, expected)
  })

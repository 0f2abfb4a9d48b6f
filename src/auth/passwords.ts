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
const normalized = (password: string): string => password.normalize('NFKC')

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

/** Words of passwords in attackers' lists, which add digits and marks. */
const COMMON =
  `password passwort passphrase qwerty qwertyuiop qwertyui asdfghjkl asdfgh asdf zxcvbnm zxcvbn azerty qwertz letmein
welcome admin administrator root login user test testing guest master monkey dragon football baseball basketball soccer
iloveyou ilove you loveyou love lovely princess sunshine shadow superman batman pokemon trustno michael jordan jennifer
hello helloworld world secret secretpassword abc abcd abcdef abcdefgh changeme change me default temp temporary
mypassword my pass pwd your thisismypassword thisisa thisis starwars computer internet samsung google facebook microsoft
whatever freedom flower cookie summer winter spring autumn monday january company muster musterai agent agents the is a
correcthorsebatterystaple psswrd one two three four five six seven eight nine zero`
    .split(/\s+/)
    .filter((word) => word.length > 0)

const LOOKALIKES: Readonly<Record<string, string>> = {
  '@': 'a',
  $: 's',
  '0': 'o',
  '1': 'l',
  '3': 'e',
  '5': 's',
  '!': 'i',
}

/**
 * Returns whether a text consists of common words alone. A pattern would try every way to divide the text, such as
 * `thisisa` as one, two or three words, and would not end for a long password.
 */
function isOnlyCommon(text: string): boolean {
  const ends = new Set([0])
  // The set yields the ends that are added meanwhile.
  for (const end of ends) for (const word of COMMON) if (text.startsWith(word, end)) ends.add(end + word.length)
  return ends.has(text.length)
}

/** Removes everything but letters. */
const lettersOf = (text: string) => text.replace(/[^\p{Letter}]/gu, '')

/** Minimum number of different characters in a password. */
const MIN_DIFFERENT = 5
const ROWS = [
  '01234567890123456789',
  'abcdefghijklmnopqrstuvwxyz',
  'qwertyuiopasdfghjklzxcvbnm',
  '1qaz2wsx3edc4rfv5tgb6yhn',
]

/**
 * Returns whether a password is among the first guesses: common words with digits or marks around them, one piece
 * repeated, rows of the keyboard, or the name of its user.
 */
export function isCommonPassword(password: string, email: string): boolean {
  const lower = normalized(password).toLowerCase()
  if (new Set(lower).size < MIN_DIFFERENT || /^(.{1,6})\1+.{0,2}$/s.test(lower)) return true
  const backwards = [...lower].reverse().join('')
  if (ROWS.some((row) => row.includes(lower) || row.includes(backwards))) return true
  const [name = ''] = email.toLowerCase().split('@')
  const own = [email.toLowerCase(), ...(name.length > 3 ? [name] : [])]
  const rest = own.reduce((text, part) => text.replaceAll(part, ''), lower)
  const plain = rest.replace(/[@$0135!]/g, (mark) => LOOKALIKES[mark] ?? mark)
  const hasLetters = /\p{Letter}/u.test(rest)
  if (!hasLetters) return rest.length < MIN_PASSWORD || ROWS[0]!.includes(rest)
  return isOnlyCommon(lettersOf(rest)) || isOnlyCommon(lettersOf(plain))
}

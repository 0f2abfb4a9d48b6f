import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto'

const ALGORITHM = 'aes-256-gcm'
const NONCE = 12
const TAG = 16

/**
 * Encrypts under a 32-byte key, with a random nonce: nonce, tag and ciphertext in one piece. It is bound to its
 * `place`, the words that say what it is and whose: somewhere else it does not open.
 */
export function seal(key: Buffer | KeyObject, place: readonly string[], content: Uint8Array): Buffer<ArrayBuffer> {
  const nonce = randomBytes(NONCE)
  const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(boundTo(place))
  const ciphertext = Buffer.concat([cipher.update(content), cipher.final()])
  return Buffer.concat([nonce, cipher.getAuthTag(), ciphertext])
}

/** What {@link seal} was given. Throws for another key, another place, and anything that was changed. */
export function unseal(key: Buffer | KeyObject, place: readonly string[], sealed: Uint8Array): Buffer {
  const nonce = sealed.subarray(0, NONCE)
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG }).setAAD(boundTo(place))
  decipher.setAuthTag(sealed.subarray(NONCE, NONCE + TAG))
  return Buffer.concat([decipher.update(sealed.subarray(NONCE + TAG)), decipher.final()])
}

/** As JSON no two lists of words read the same. */
const boundTo = (place: readonly string[]): Buffer => Buffer.from(JSON.stringify(place))

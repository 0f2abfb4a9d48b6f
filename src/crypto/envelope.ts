import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto'

const ALGORITHM = 'aes-256-gcm'
const NONCE = 12
const TAG = 16

/**
 * Encrypts under a 32-byte key with a random nonce. Returns nonce, tag and ciphertext in one piece, bound to its
 * `context`: words that identify the content and its owner. It cannot be decrypted for another context.
 */
export function seal(key: Buffer | KeyObject, context: readonly string[], content: Uint8Array): Buffer<ArrayBuffer> {
  const nonce = randomBytes(NONCE)
  const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(boundTo(context))
  const ciphertext = Buffer.concat([cipher.update(content), cipher.final()])
  return Buffer.concat([nonce, cipher.getAuthTag(), ciphertext])
}

/** Decrypts the result of {@link seal}. Throws for another key, another context, and modified content. */
export function unseal(key: Buffer | KeyObject, context: readonly string[], sealed: Uint8Array): Buffer {
  const nonce = sealed.subarray(0, NONCE)
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG }).setAAD(boundTo(context))
  decipher.setAuthTag(sealed.subarray(NONCE, NONCE + TAG))
  return Buffer.concat([decipher.update(sealed.subarray(NONCE + TAG)), decipher.final()])
}

/** Encodes a list of words, so that no two lists have the same encoding. */
const boundTo = (context: readonly string[]): Buffer => Buffer.from(JSON.stringify(context))

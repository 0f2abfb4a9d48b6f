import { z } from 'zod'

const MAX_HEADERS = 20
const MAX_LENGTH = 8_192

/** Headers that the service or the connection sets. */
const RESERVED = new Set([
  'accept-encoding',
  'connection',
  'content-length',
  'content-type',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

const Name = z
  .string()
  .regex(/^[\w!#$%&'*+.^`|~-]{1,100}$/)
  .refine((name) => !RESERVED.has(name.toLowerCase()))

const Value = z
  .string()
  .trim()
  .min(1)
  .max(MAX_LENGTH)
  .regex(/^[\t\x20-\x7e\x80-\xff]+$/, 'must be one line of Latin-1 characters')

/**
 * Further headers of a model provider: `{"api-key": "…"}`. Their names are lowercased. A header that carries a key
 * (`Authorization`, `api-key`, `x-api-key`, `x-goog-api-key`) replaces the header of the provider's key.
 */
export const ProviderHeaders = z
  .record(Name, Value, {
    error: ({ code }) =>
      code === 'invalid_key' ? 'must be the name of a header that is not set by itself' : undefined,
  })
  .refine((headers) => Object.keys(headers).length <= MAX_HEADERS, `must be at most ${MAX_HEADERS}`)
  .transform((headers) =>
    Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
  )

/** A provider's key. Surrounding blanks and line breaks are removed; inner ones are rejected. */
export const ProviderKey = z
  .string()
  .trim()
  .min(1)
  .max(MAX_LENGTH)
  .regex(/^[\x21-\x7e]+$/, 'must not contain blanks, line breaks or characters beyond ASCII')

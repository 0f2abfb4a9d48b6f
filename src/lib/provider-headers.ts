import { z } from 'zod'

const MAX_HEADERS = 20
const MAX_LENGTH = 8_192

/** What the service or the connection sets by itself. */
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
 * Further headers of a model provider: `{"api-key": "…"}`. Their names come out in lower case. One in which a key is
 * sent (`Authorization`, `api-key`, `x-api-key`, `x-goog-api-key`) takes the place of the header of the provider's key.
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

/** A provider's key: blanks and line breaks around it are dropped, there are none inside. */
export const ProviderKey = z
  .string()
  .trim()
  .min(1)
  .max(MAX_LENGTH)
  .regex(/^[\x21-\x7e]+$/, 'must not contain blanks, line breaks or characters beyond ASCII')

import { z } from 'zod'
import { isScope } from '../auth/scopes.ts'
import { int, ok, requiredText, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput } from '../lib/page.ts'

const scope = z
  .string()
  .refine(isScope, 'Invalid scopes. Must be: *, agents:execute, or <resource>:read, <resource>:write')

/** POST /keys (contract.md section 7). */
export const CreateKey = z
  .object({
    name: requiredText(200),
    expiresInDays: int(1, 365).nullish().describe('Default: never expires'),
    scopes: z.array(scope).min(1).max(50).nullish().describe("Within the caller's own, which are the default"),
  })
  .meta({ examples: [{ name: 'CI', expiresInDays: 90, scopes: ['agents:execute'] }] })

/** DELETE /keys/{id} (contract.md section 7). */
export const KeyId = z.object({ id: z.string().describe('The key') })

/** GET /keys (contract.md section 7). */
export const ListKeys = z.object(pageInput)

/** A personal access token as its user sees it: never the token itself (contract.md section 7). */
export const Key = z
  .object({
    id: z.string(),
    name: z.string(),
    preview: z.string().describe('How the token begins'),
    scopes: z.array(z.string()),
    createdAt: timestamp,
    expiresAt: timestamp.nullable(),
    lastUsedAt: timestamp.nullable().describe('To the minute'),
  })
  .meta({ id: 'Key' })

export const KeysResponse = ok({ keys: z.array(Key), nextCursor })
export const KeyCreated = ok({
  id: z.string(),
  name: z.string(),
  token: z.string().nullable().describe('The token, this once; null when the request is repeated'),
  expiresAt: timestamp.nullable(),
  key: Key,
})
export const KeyDeleted = ok({ message: z.string() })

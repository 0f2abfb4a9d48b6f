import { z } from 'zod'
import { isScope } from '../auth/scopes.ts'
import { int, ok, requiredText, timestamp } from '../lib/fields.ts'
import { nextCursor, onlyTrue, pageInput } from '../lib/page.ts'

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

/** DELETE /keys/{id} (contract-2.md section 8.1). */
export const RevokeKey = KeyId.extend({
  cascade: onlyTrue('cascade').describe('Also revoke keys made with it, pause missions and cancel runs'),
})

/** GET /keys (contract.md section 7). */
export const ListKeys = z.object(pageInput)

/** A personal access token as its user sees it: never the token itself (contract.md section 7). */
export const Key = z
  .object({
    id: z.string(),
    name: z.string(),
    preview: z.string().describe('How the token begins'),
    scopes: z.array(z.string()),
    tokenId: z.string().nullable().describe('The key with which it was made; null if it was made otherwise'),
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
export const Derived = z
  .object({
    keys: z.array(z.string()).describe('Keys made with it, and with those'),
    missions: z.array(z.string()).describe('Missions last written with one of these keys, unless completed'),
    runs: z.array(z.string()).describe('Pending and running executions that one of these keys or missions started'),
  })
  .meta({ id: 'DerivedOfKey' })

export const KeyDeleted = ok({
  message: z.string(),
  derived: Derived.describe('What was made with the key: ended too with cascade=true, else still there'),
})

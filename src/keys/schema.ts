import { z } from 'zod'
import { isScope, SCOPE_ADVICE } from '../auth/scopes.ts'
import { int, ok, requiredText, timestamp } from '../lib/fields.ts'
import { flag, nextCursor, pageInput } from '../lib/page.ts'

const scope = z.string().refine(isScope, {
  error: 'Invalid scopes. Must be: *, agents:execute, or <resource>:read, <resource>:write',
  params: { detail: `${SCOPE_ADVICE}.` },
})

/** POST /keys (contract.md section 7). */
export const CreateKey = z
  .object({
    name: requiredText(200).describe('Name of the key'),
    expiresInDays: int(1, 365)
      .nullish()
      .describe('Number of days until the key expires. Default: never, or with the key that makes it'),
    scopes: z
      .array(scope)
      .min(1)
      .max(50)
      .nullish()
      .describe("Scopes, within the caller's own. Default: the caller's own"),
  })
  .meta({ examples: [{ name: 'CI', expiresInDays: 90, scopes: ['agents:execute'] }] })

/** DELETE /keys/{id} (contract.md section 7). */
export const KeyId = z.object({ id: z.string().describe('The key') })

/** DELETE /keys/{id} (contract-2.md section 8.1). */
export const RevokeKey = KeyId.extend({
  cascade: flag('cascade').describe(
    'Also revoke keys made with it, pause missions, cancel runs, delete invitations and disable webhooks',
  ),
})

/** GET /keys (contract.md section 7). */
export const ListKeys = z.object(pageInput)

/** A personal access token as its user sees it: never the token itself (contract.md section 7). */
export const Key = z
  .object({
    id: z.string().describe('Id of the key'),
    name: z.string().describe('Name of the key'),
    preview: z.string().describe('First characters of the token'),
    scopes: z.array(z.string()).describe('Scopes of the key; `*` for everything'),
    tokenId: z.string().nullable().describe('The key that created it; null if no key did'),
    createdAt: timestamp.describe('Time at which the key was created'),
    expiresAt: timestamp.nullable().describe('Time at which the key expires; null for never'),
    lastUsedAt: timestamp.nullable().describe('Time of its last use, to the minute'),
  })
  .meta({ id: 'Key', description: 'A personal access token, without its secret' })

export const KeysResponse = ok({ keys: z.array(Key).describe('Your keys, newest first'), nextCursor })
export const KeyCreated = ok({
  id: z.string().describe('Id of the key'),
  name: z.string().describe('Name of the key'),
  token: z.string().nullable().describe('The token, returned only once; null when the request is repeated'),
  expiresAt: timestamp.nullable().describe('Time at which the key expires; null for never'),
  key: Key,
})
export const Derived = z
  .object({
    keys: z.array(z.string()).describe('Keys that were created with it or with one of those'),
    missions: z.array(z.string()).describe('Missions last written with one of these keys, unless completed'),
    runs: z.array(z.string()).describe('Pending and running executions that one of these keys or missions started'),
  })
  .meta({ id: 'DerivedOfKey', description: 'Resources that a key created, and that continue without it' })

export const KeyDeleted = ok({
  message: z.string().describe('Confirmation for people'),
  derived: Derived.describe('Resources that the key created: ended with `cascade=true`, otherwise unchanged'),
})

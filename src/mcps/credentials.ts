import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { dataKeyOf, readDataKey } from '../crypto/data-key.ts'
import { seal, unseal } from '../crypto/envelope.ts'
import type { Prisma, Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import type { ConnectionDeps } from './oauth/connections.ts'
import { type CreateMcp, MAX_CREDENTIALS } from './schema.ts'

type Owner = { organizationId: string; mcpId: string }

/** Returns the encryption context of a credential. With another server or name it does not decrypt. */
const contextOf = ({ organizationId, mcpId }: Owner, name: string) => ['mcp credential', organizationId, mcpId, name]

/** Replaces the named credentials of a server, and removes those that are null. Throws 400 beyond the maximum. */
export async function setCredentials(
  tx: Tx,
  { organizationId, userId: updatedBy }: Actor,
  deps: Deps,
  mcpId: string,
  credentials: NonNullable<z.output<typeof CreateMcp>['credentials']>,
  now: Date,
): Promise<void> {
  const entries = Object.entries(credentials)
  if (!entries.length) return
  const owner = { organizationId, mcpId }
  const dataKey = await dataKeyOf(tx, deps, organizationId, now)
  const names = entries.map(([name]) => name)
  await tx.mcpCredential.deleteMany({ where: { ...owner, name: { in: names } } })
  const data = entries.flatMap(([name, credential]) => {
    if (!credential) return []
    const ciphertext = seal(dataKey, contextOf(owner, name), Buffer.from(credential.value))
    return [{ ...owner, name, ciphertext, isSecret: credential.isSecret ?? true, updatedAt: now, updatedBy }]
  })
  if (data.length) await tx.mcpCredential.createMany({ data })
  if ((await tx.mcpCredential.count({ where: owner })) > MAX_CREDENTIALS) {
    throw badRequest(`Invalid credentials. At most ${MAX_CREDENTIALS}`, { detail: 'Remove some with null.' })
  }
}

/** Returns the credentials of a server by name, for its requests only. Returns none if its address has changed. */
export async function readCredentials(
  deps: ConnectionDeps,
  { id: mcpId, organizationId, url }: Prisma.McpServerGetPayload<object>,
): Promise<Map<string, string>> {
  const owner = { organizationId, mcpId }
  const rows = await deps.db.mcpCredential.findMany({ where: { ...owner, mcp: { url } } })
  if (!rows.length) return new Map()
  const dataKey = await readDataKey(deps, organizationId)
  return new Map(
    rows.map(({ name, ciphertext }) => [name, unseal(dataKey, contextOf(owner, name), ciphertext).toString()]),
  )
}

import type { z } from 'zod'
import type { Actor } from '../../auth/actor.ts'
import { audit } from '../../auth/audit.ts'
import type { Deps } from '../../deps.ts'
import { notFound } from '../../errors.ts'
import { find } from '../rows.ts'
import type { McpDisconnected } from '../schema.ts'
import { grantsToRevoke, revoke } from './revocation.ts'

/**
 * DELETE /mcps/{id}/connection: forgets the caller's tokens at once, then revokes them. `revoked` states whether the
 * authorization server has confirmed that. Throws 404 without a connection.
 */
export async function disconnect(actor: Actor, deps: Deps, id: string): Promise<Disconnected> {
  const server = await find(actor, deps, id)
  const { userId } = actor
  const where = { organizationId: server.organizationId, mcpId: server.id, userId }
  const now = deps.clock.now()
  const deleted = await deps.db.$transaction(async (tx) => {
    const grants = await grantsToRevoke(tx, deps, where)
    await tx.mcpSignIn.deleteMany({ where })
    const { count } = await tx.mcpConnection.deleteMany({ where })
    if (!count) throw notFound('Connection')
    await audit(tx, actor, 'mcp.disconnect', server.id, now)
    return grants
  })
  return { message: 'Disconnected successfully', revoked: await revoke(deps, deleted) }
}

type Disconnected = Omit<z.input<typeof McpDisconnected>, 'success'>

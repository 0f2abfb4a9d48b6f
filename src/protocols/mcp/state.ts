import type { Actor } from '../../auth/actor.ts'
import { seal, unseal } from '../../crypto/envelope.ts'
import { deriveKey } from '../../crypto/secrets.ts'
import type { Deps } from '../../deps.ts'
import { canonical } from '../../lib/json.ts'

/** How long a person may take to answer a question (ms). */
const LIFETIME = 60 * 60 * 1000

/** State of a call that waits for answers of a person. The client keeps it, and cannot read it. */
export type RequestState = { executionId: string }

/** The call that a state belongs to. */
type Of = { actor: Actor; tool: string; args: unknown }

/** Binds a state to user, organization, tool and arguments (contract-2.md section 6.1). */
const contextOf = ({ actor, tool, args }: Of) => [
  'mcp request state',
  actor.organizationId,
  actor.userId,
  tool,
  canonical(args),
]

const keyOf = ({ wrappingKey }: Deps) => deriveKey(wrappingKey.export(), 'mcp request states')

/** Encrypts a state for the client. */
export function sealState(deps: Deps, of: Of, state: RequestState): string {
  const content = { ...state, expiresAt: deps.clock.now().getTime() + LIFETIME }
  return seal(keyOf(deps), contextOf(of), Buffer.from(JSON.stringify(content))).toString('base64url')
}

/** Decrypts a state. Throws if it belongs to another call, was modified, or has expired. */
export function openState(deps: Deps, of: Of, sealed: string): RequestState {
  const content = JSON.parse(unseal(keyOf(deps), contextOf(of), Buffer.from(sealed, 'base64url')).toString())
  if (content.expiresAt <= deps.clock.now().getTime()) throw new Error('The state has expired')
  return { executionId: content.executionId }
}

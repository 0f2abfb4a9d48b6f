import type { JSONSchema7 } from '@ai-sdk/provider'
import type { Actor } from '../../../auth/actor.ts'
import type { Tx } from '../../../db/client.ts'
import type { KeyClaim } from '../../../idempotency.ts'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Output } from '../../../lib/output.ts'
import type { Fields } from '../../../lib/unknown.ts'
import type { ExecutionRow } from '../events/events.ts'
import type { AgentRow } from './claims.ts'
import type { GivenTurn } from './client-history.ts'

// The request for a run, as `accept` takes it.

/** A run request whose permissions have been checked. */
export type Request = {
  actor: Actor
  agent: AgentRow
  message: string
  mediaIds: readonly string[]
  /** Paths of files of the space. */
  files?: readonly string[]
  /** Model chosen by the caller. */
  model: string | null
  /** Settings, fallback models and output chosen by the caller. */
  overrides: Overrides
  conversation: Conversation
  onBusy: 'queue' | 'reject' | 'interrupt'
  parent: ExecutionRow | null
  /** The Idempotency-Key of the request. */
  key: KeyClaim | null
  /** The task that the run works on. */
  taskId: string | null
  /** The mission that started the run. Its chat refers to it too. */
  mission: { id: string; title: string; runNumber: number } | null
  /** Set if a parent run waits for this one and holds a slot meanwhile. Such a run starts regardless of capacity. */
  delegated?: true
  /** Takes the locks that must precede all others in the accepting transaction. */
  first?: (tx: Tx) => Promise<void>
  /** Further changes in the accepting transaction. An error rejects the run. */
  also: ((tx: Tx, executionId: string, now: Date) => Promise<void>) | null
}

/** A request with a resolved model name (contract-2.md section 1.20). */
export type NamedRequest = Request & { modelName: string }

/**
 * Place of a run: an existing session, a new session or branch of an existing chat, or a new chat in a space. `given`:
 * the history of a new session or branch, as its client has it.
 */
export type Conversation = {
  spaceId: string
  chatId?: string
  sessionId?: string
  branch?: Branch
  given?: readonly GivenTurn[]
}

/**
 * A session that replaces another one from a turn on (contract-2.md section 1.12). Its turns continue the numbering of
 * the other session, so that each position occurs once on the path from the first turn.
 */
export type Branch = {
  /** Id of the session that is branched. */
  of: string
  rootSessionId: string
  parentSessionId: string | null
  parentPosition: number | null
  /** Queue number of the branch's first run. */
  queueSeq: number
  wasPrivate: boolean
  /** Whether the branch does not become the active one before it is continued. */
  isAside?: boolean
}

/** Choices of the caller, which override those of the agent (contract-2.md sections 2.2, 2.3 and 2.5). */
export type Overrides = {
  modelSettings?: ModelSettings
  fallbackModels?: string[]
  output?: Output
  /** Texts of the client that follow the agent's prompt (contract-2.md section 6). */
  instructions?: string
  /** Parts of the request that the client's protocol repeats. */
  echo?: Fields
  /** Function tools that the client calls itself. */
  clientTools?: ClientTool[]
  /** The one of these that the first step has to call. `modelSettings.toolChoice` is then `required`. */
  demandedTool?: string
}

/** A tool of a client (contract-2.md section 6.2). */
export type ClientTool = {
  name: string
  description: string
  parameters: JSONSchema7
  /** The format of the text that a custom tool takes. The text is the property `input` of a call. */
  format?: { type: string }
  /** The client's group of the tool, with which the name begins. */
  namespace?: string
  /** Whether the client offers it no longer. The run has earlier calls of it. */
  isFormer?: true
}

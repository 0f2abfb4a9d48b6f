import type { KeyObject } from 'node:crypto'
import type { Logger } from 'pino'
import type { AgentCache } from './agents/agent-cache.ts'
import type { AccessTokens } from './auth/access-tokens.ts'
import type { Actors } from './auth/actors.ts'
import type { IdTokens } from './auth/id-tokens.ts'
import type { KeyNetworks } from './auth/key-networks.ts'
import type { RateLimits } from './auth/rate-limits.ts'
import type { Revocations } from './auth/revocations.ts'
import type { SignInProvider } from './auth/sign-in-provider.ts'
import type { Bus } from './bus/index.ts'
import type { Db } from './db/client.ts'
import type { Engine } from './executions/engine/engine.ts'
import type { Notices } from './executions/engine/events/notices.ts'
import type { Models } from './executions/engine/models/models.ts'
import type { Clock } from './lib/clock.ts'
import type { Mailer } from './mail/service.ts'
import type { OperatorServers } from './mcps/operator.ts'
import type { MediaStorage } from './media/storage.ts'
import type { Pause } from './pause.ts'
import type { Settings } from './settings.ts'
import type { Telemetry } from './telemetry/telemetry.ts'

/** Dependencies of the service; tests replace some. */
export type Deps = {
  readonly settings: Settings
  readonly db: Db
  readonly clock: Clock
  readonly bus: Bus
  readonly log: Logger
  readonly models: Models
  readonly engine: Engine
  /** Wakes subscribers of a chat. */
  readonly chatNotices: Notices
  readonly actors: Actors
  /** Cache of agents by version. */
  readonly agentCache: AgentCache
  readonly revocations: Revocations
  /** Null unless the operator has set a rate limit. */
  readonly rateLimits: RateLimits | null
  /** The networks from which keys are used. */
  readonly keyNetworks: KeyNetworks
  /** Null unless SMTP_URL is set. */
  readonly mail: Mailer | null
  /** MCP servers of MCP_CONFIG. */
  readonly operatorServers: OperatorServers
  readonly storage: MediaStorage
  /** Bytes of unfinished uploads in this process, by organization. */
  readonly uploads: Map<string, number>
  /**
   * Refreshes of OAuth tokens in progress. The database stays open until they end, because their answers may have the
   * only valid tokens.
   */
  readonly tokenRefreshes: Set<Promise<void>>
  readonly pause: Pause
  readonly telemetry: Telemetry
  /** Null if no identity provider is configured. */
  readonly idTokens: IdTokens | null
  /** Null unless MCP_AUTHORIZATION_SERVER is set. */
  readonly accessTokens: AccessTokens | null
  /** Null unless OIDC_CLIENT_ID is set. */
  readonly signInProvider: SignInProvider | null
  /** Keys the digests of tokens. */
  readonly tokenKey: KeyObject
  /** Keys the digests of browser sessions, of one-time links, and of names and addresses in the limits of sign-ins. */
  readonly sessionKey: KeyObject
  /** Keys the digests of idempotency keys and their inputs. */
  readonly idempotencyKey: KeyObject
  /** Wraps the data keys that encrypt secrets. */
  readonly wrappingKey: KeyObject
  /** Set for a request whose writes share one transaction: runs a function after the commit. See idempotency.ts. */
  readonly afterCommit?: (act: () => unknown) => void
}

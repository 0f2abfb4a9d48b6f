/** Notifications by channel. They contain only ids; subscribers read the rows. */
export type Notices = {
  /** Executions that were claimed, ended or have new events. */
  execution: string
  /** Executions to cancel. */
  cancel: string
  /** Tokens that were revoked. */
  token: string
  /** Tasks that were created, changed or deleted. */
  task: string
  /** Chats that were created, changed or deleted. */
  chat: string
  /** Approvals that a run asked for, or that were decided or have expired. */
  approval: string
  /** Organizations with runs that may start in any process with capacity. */
  pending: string
  /** Organizations whose model providers were changed. */
  provider: string
  /** Organizations whose skills were changed. */
  skill: string
  /** Organizations in whose spaces a file was changed. */
  file: string
  /** Organizations whose webhooks were changed, or have something to send. */
  webhook: string
}

/** Receives ids, or null if notifications may have been missed and everything must be checked. Must not throw. */
export type Handler = (ids: readonly string[] | null) => void

/** Publishes changes of rows within a process and between the processes on one PostgreSQL database. */
export type Bus = {
  publish<Channel extends keyof Notices>(channel: Channel, ids: readonly Notices[Channel][]): void
  /** Returns a function that ends the subscription. */
  subscribe(channel: keyof Notices, handler: Handler): () => void
}

/** What happened, with ids only: whoever hears of it reads the rows. */
export type Notices = {
  /** Executions that were claimed, got events or ended. */
  execution: string
  /** Executions that shall be cancelled. */
  cancel: string
  /** Tokens that were revoked. */
  token: string
  /** Tasks that were made, changed or deleted. */
  task: string
  /** The same of chats. */
  chat: string
  /** Organizations with runs that may begin wherever there is room. */
  pending: string
  /** Organizations whose model providers were changed. */
  provider: string
}

/** Is told ids; null when notices may have been missed, so that everything has to be looked at. Must not throw. */
export type Handler = (ids: readonly string[] | null) => void

/** How the parts of one process, and many processes on one PostgreSQL, tell each other that rows have changed. */
export type Bus = {
  publish<Channel extends keyof Notices>(channel: Channel, ids: readonly Notices[Channel][]): void
  /** Returns what ends the subscription. */
  subscribe(channel: keyof Notices, handler: Handler): () => void
}

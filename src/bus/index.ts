/** What happened, with ids only: whoever hears of it reads the rows. */
export type Notices = {
  /** Executions that were claimed, got events or ended. */
  execution: string
  /** Executions that shall be cancelled. */
  cancel: string
  /** Tokens that were revoked. */
  token: string
}

/** How the parts of one process, and later many processes, tell each other that rows have changed. */
export type Bus = {
  publish<Channel extends keyof Notices>(channel: Channel, ids: readonly Notices[Channel][]): void
  /** Returns what ends the subscription. Handlers must not throw. */
  subscribe<Channel extends keyof Notices>(
    channel: Channel,
    handler: (ids: readonly Notices[Channel][]) => void,
  ): () => void
}

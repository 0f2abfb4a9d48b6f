/** In milliseconds: how long to wait for a transaction to begin (the lock, or a connection), and for how long it may last. */
export const TRANSACTION = { maxWait: 10_000, timeout: 10_000 }

import type { Clock } from '../../../lib/clock.ts'

/** Number of consecutive failures that open a provider's breaker, and the period in which they must happen (ms). */
const FAILURES = 5
const WINDOW = 30_000
/** Time for which a provider is skipped (ms). */
const OPEN_FOR = 30_000

/** Skips providers that keep failing (contract-2.md section 2.2). Each process counts for itself. */
export type Breaker = {
  failed(provider: string): void
  succeeded(provider: string): void
  isOpen(provider: string): boolean
}

/** Creates a breaker without failures. A success closes a provider's breaker and clears its failures. */
export function createBreaker(clock: Clock): Breaker {
  const failures = new Map<string, number[]>()
  const openUntil = new Map<string, number>()
  return {
    failed(provider) {
      const now = clock.now().getTime()
      const recent = [...(failures.get(provider) ?? []).filter((at) => at > now - WINDOW), now]
      if (recent.length >= FAILURES) openUntil.set(provider, now + OPEN_FOR)
      failures.set(provider, recent.slice(-FAILURES))
    },
    succeeded(provider) {
      failures.delete(provider)
      openUntil.delete(provider)
    },
    isOpen: (provider) => (openUntil.get(provider) ?? 0) > clock.now().getTime(),
  }
}

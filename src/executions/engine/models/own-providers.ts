import { LRUCache } from 'lru-cache'
import type { ProviderKind } from '../../../lib/base-address.ts'
import { createProvider, type Endpoint, type Provider, type ProviderDeps } from './providers.ts'

/** A provider that an organization has set. */
export type OwnProvider = Pick<Endpoint, 'apiKey' | 'baseUrl' | 'headers'> & {
  name: string
  kind: ProviderKind
  /** Differs when anything of it was changed. */
  version: string
}

/** Reads the providers that an organization has set. */
export type ReadProviders = (organizationId: string) => Promise<readonly OwnProvider[]>

/**
 * For how long an organization's providers are taken for what they were (ms). A change is heard of at once; one whose
 * notice got lost has its effect after so long: within 5 s (contract-2.md section 2.9).
 */
const FRESH = 4_000
const MAX_KNOWN = 10_000

type Known = {
  readAt: number
  providers: ReadonlyMap<string, Provider>
  own: ReadonlyMap<string, { version: string; provider: Provider }>
  /** Of the records that this process has used, those before a change too: a run may still be using them. */
  secrets: ReadonlySet<string>
}

/** Keeps for a moment which providers each organization has: its own, and those of the server that it has not replaced. */
export function createOwnProviders(
  ofServer: ReadonlyMap<string, Provider>,
  deps: ProviderDeps,
  read: ReadProviders = async () => [],
) {
  const known = new LRUCache<string, Known>({ max: MAX_KNOWN })
  let changes = 0

  async function load(organizationId: string, before: Known | undefined): Promise<Known> {
    const countBefore = changes
    const readAt = deps.clock.now().getTime()
    const rows = await read(organizationId)
    const own = new Map(
      rows.map(({ name, kind, version, ...endpoint }) => {
        const kept = before?.own.get(name)
        if (kept?.version === version) return [name, kept]
        const definition = { name, kind, hint: '', endpoint: { ...endpoint, isOperators: false } }
        return [name, { version, provider: createProvider(definition, deps) }]
      }),
    )
    const providers = rows.length
      ? new Map([...ofServer, ...[...own].map(([name, { provider }]) => [name, provider] as const)])
      : ofServer
    const secrets = new Set([
      ...(before?.secrets ?? []),
      ...[...own.values()].flatMap(({ provider }) => provider.secrets),
    ])
    // What was read before a change is not to be kept after it.
    const loaded = { readAt: countBefore === changes ? readAt : Number.NEGATIVE_INFINITY, providers, own, secrets }
    known.set(organizationId, loaded)
    return loaded
  }

  return {
    /** Returns the providers of an organization by name, in the order in which a default is chosen. */
    async of(organizationId: string): Promise<ReadonlyMap<string, Provider>> {
      const found = known.get(organizationId)
      const isFresh = found && Math.abs(deps.clock.now().getTime() - found.readAt) < FRESH
      return (isFresh ? found : await load(organizationId, found)).providers
    },
    /** Returns what must not be shown of the providers that an organization has set. */
    secretsOf: (organizationId: string): Iterable<string> => known.get(organizationId)?.secrets ?? [],
    /** Reads the providers of these organizations anew at their next use; those of all where it is null. */
    forget(organizationIds: readonly string[] | null): void {
      changes++
      for (const [id, entry] of known.entries()) {
        if (!organizationIds || organizationIds.includes(id)) entry.readAt = Number.NEGATIVE_INFINITY
      }
    },
  }
}

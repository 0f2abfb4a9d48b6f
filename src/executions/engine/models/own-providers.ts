import { LRUCache } from 'lru-cache'
import type { ProviderKind } from '../../../lib/net/base-address.ts'
import { createProvider, type Endpoint, type Provider, type ProviderDeps, settingsIn } from './providers.ts'

/** A provider that an organization has configured. */
export type OwnProvider = Pick<Endpoint, 'apiKey' | 'baseUrl' | 'headers'> & {
  name: string
  kind: ProviderKind
  /** Changes whenever the provider's settings change. */
  version: string
}

/** Reads the providers that an organization has configured. */
export type ReadProviders = (organizationId: string) => Promise<readonly OwnProvider[]>

/**
 * Maximum age of cached providers (ms). A change is normally published at once; if the notification is lost, it takes
 * effect after this time, within 5 s (contract-2.md section 2.9).
 */
const MAX_AGE = 4_000
/** Maximum number of organizations whose providers are cached. */
const MAX_CACHED = 10_000

/** The providers of an organization, as read at a time (ms). */
type CachedProviders = {
  readAt: number
  providers: ReadonlyMap<string, Provider>
  own: ReadonlyMap<string, { version: string; provider: Provider }>
  /** Secrets of all records that this process has used, including replaced ones that a run may still use. */
  secrets: ReadonlySet<string>
}

/** Caches the providers of each organization: its own, and those of the server that it has not replaced. */
export function createOwnProviders(
  ofServer: ReadonlyMap<string, Provider>,
  deps: ProviderDeps,
  read: ReadProviders = async () => [],
) {
  const cache = new LRUCache<string, CachedProviders>({ max: MAX_CACHED })
  let changes = 0

  async function load(organizationId: string, before: CachedProviders | undefined): Promise<CachedProviders> {
    const countBefore = changes
    const readAt = deps.clock.now().getTime()
    const rows = await read(organizationId)
    const own = new Map(
      rows.map(({ name, kind, version, ...endpoint }) => {
        const previous = before?.own.get(name)
        if (previous?.version === version) return [name, previous]
        const settings = settingsIn(name, 'the settings of the organization')
        const definition = { name, kind, hint: '', settings, endpoint: { ...endpoint, isOperators: false } }
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
    // Providers read before a change must not be cached after it.
    const loaded = { readAt: countBefore === changes ? readAt : Number.NEGATIVE_INFINITY, providers, own, secrets }
    cache.set(organizationId, loaded)
    return loaded
  }

  return {
    /** Returns the providers of an organization by name, in the order in which a default is chosen. */
    async of(organizationId: string): Promise<ReadonlyMap<string, Provider>> {
      const found = cache.get(organizationId)
      const isFresh = found && Math.abs(deps.clock.now().getTime() - found.readAt) < MAX_AGE
      return (isFresh ? found : await load(organizationId, found)).providers
    },
    /** Returns a provider of an organization whose providers were loaded before. */
    named: (organizationId: string, name: string): Provider | undefined =>
      (cache.get(organizationId)?.providers ?? ofServer).get(name),
    /** Returns the secrets of an organization's providers, for redaction. */
    secretsOf: (organizationId: string): Iterable<string> => cache.get(organizationId)?.secrets ?? [],
    /** Reloads the providers of these organizations at their next use, or of all organizations for null. */
    forget(organizationIds: readonly string[] | null): void {
      changes++
      for (const [id, entry] of cache.entries()) {
        if (!organizationIds || organizationIds.includes(id)) entry.readAt = Number.NEGATIVE_INFINITY
      }
    },
  }
}

import { readDataKey } from '../crypto/data-key.ts'
import { unseal } from '../crypto/envelope.ts'
import type { Deps } from '../deps.ts'
import type { OwnProvider, ReadProviders } from '../executions/engine/models/own-providers.ts'
import { publicAddress } from '../executions/engine/models/providers.ts'
import type { ProviderKind } from '../lib/net/base-address.ts'

/** The encrypted parts of a record. */
export type Sealed = Pick<OwnProvider, 'headers'> & { apiKey: string }

/** Returns the encryption context of a record. With another name or address it does not decrypt. */
export const contextOf = (row: { organizationId: string; name: string; baseUrl: string | null }) => [
  'provider',
  row.organizationId,
  row.name,
  row.baseUrl ?? '',
]

/** Returns the API of a provider name, and the first segment of its models' names. */
export function readName(name: string): { kind: ProviderKind; segment: string } {
  const segment = name.replace(/^compatible:/, '')
  return { kind: name.startsWith('compatible') ? 'compatible' : (name as ProviderKind), segment }
}

/** Returns the address of a provider: its public one if the organization gave none. */
export function addressOf(kind: ProviderKind, baseUrl: string | null): string {
  if (baseUrl !== null) return baseUrl
  if (kind === 'compatible') throw new Error('A compatible provider without an address')
  return publicAddress(kind)
}

/** Creates the reader of an organization's providers: one query, and a second one if there are any. */
export function createReadProviders(deps: Pick<Deps, 'db' | 'wrappingKey'>): ReadProviders {
  return async (organizationId) => {
    const rows = await deps.db.provider.findMany({ where: { organizationId }, orderBy: { name: 'asc' } })
    if (!rows.length) return []
    const dataKey = await readDataKey(deps, organizationId)
    return rows.map((row) => {
      const { apiKey, headers } = JSON.parse(unseal(dataKey, contextOf(row), row.ciphertext).toString()) as Sealed
      const { kind, segment } = readName(row.name)
      const baseUrl = addressOf(kind, row.baseUrl)
      return { name: segment, kind, version: `${row.setAt.getTime()} ${row.setBy}`, baseUrl, apiKey, headers }
    })
  }
}

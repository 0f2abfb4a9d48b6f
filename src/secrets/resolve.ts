import { readDataKey } from '../crypto/data-key.ts'
import { unseal } from '../crypto/envelope.ts'
import type { Deps } from '../deps.ts'

// Values of secrets for outgoing requests (contract-2.md section 2.10). Nothing else reads them.

/** Columns that identify the secrets of a space or of the organization. */
export type Scope = { organizationId: string; scope: string }

/** Scope of secrets that belong to no space. */
export const OF_ORGANIZATION = 'organization'

/** Returns the encryption context of a secret. In another row it does not decrypt. */
export const contextOf = ({ organizationId, scope, name }: Scope & { name: string }) => [
  'secret',
  organizationId,
  scope,
  name,
]

/** Thrown if a secret must not be sent. The message names the secret and the host, never a value. */
export class SecretNotAllowed extends Error {
  override name = 'SecretNotAllowed'
}

/** Thrown if a server needs a secret that is not set. */
class SecretNotSet extends Error {
  override name = 'SecretNotSet'
}

/** Returns whether a secret was not sent. The message of such an error is public. */
export const isNotSent = (error: unknown): error is SecretNotAllowed | SecretNotSet =>
  error instanceof SecretNotAllowed || error instanceof SecretNotSet

/** A request that mentions secrets. */
export type SecretUse = {
  organizationId: string
  /** The space of the run; null outside of a run. */
  spaceId: string | null
  /** The address of the request, whose host never contains a secret. */
  url: URL
  /** The user who last wrote the request, and may use the secrets that this user may write. Null for a model. */
  writtenBy: string | null
  /** Whether an agent or a skill of another organization takes part. */
  isForeign: boolean
}

type ResolveDeps = Pick<Deps, 'db' | 'settings' | 'wrappingKey'>

const MENTION = /\$(?:\{|%7B)([\w-]+)(?:\}|%7D)/gi

/** Returns the names that texts mention as `${NAME}`, also with URL-encoded braces. */
export const mentionsIn = (texts: readonly string[]): string[] => [
  ...new Set(texts.flatMap((text) => [...text.matchAll(MENTION)].map(([, name = '']) => name))),
]

/** Replaces each `${NAME}` by its value. Names without a value stay. */
export const fillIn = (text: string, values: ReadonlyMap<string, string>, encode = (value: string) => value): string =>
  text.replace(MENTION, (whole, name: string) => {
    const value = values.get(name)
    return value === undefined ? whole : encode(value)
  })

/** Fills secrets into path and query of an address. Throws if that would change anything else. */
export function fillUrl(url: URL, values: ReadonlyMap<string, string>): URL {
  const filled = new URL(url)
  filled.pathname = fillIn(url.pathname, values, encodeURIComponent)
  filled.search = fillIn(url.search, values, encodeURIComponent)
  if (filled.origin !== url.origin) throw new SecretNotAllowed('A secret would change the host of the address')
  return filled
}

/**
 * Returns the forms in which a value may come back: as it is, URL-encoded, in base64, also as a part of a longer text
 * (`Bearer <value>`), and in hexadecimal. A value with a scheme (`Bearer <token>`) may come back without it.
 */
export const formsOf = (values: Iterable<string>): string[] => [
  ...new Set(
    [...values]
      .flatMap((value) => [value, ...(TOKEN.exec(value)?.slice(1) ?? [])])
      .flatMap((value) => {
        const bytes = Buffer.from(value)
        return [
          value,
          encodeURIComponent(value),
          bytes.toString('base64'),
          bytes.toString('base64url'),
          ...[0, 1, 2].flatMap((before) => [
            base64Within(bytes, before, 'base64'),
            base64Within(bytes, before, 'base64url'),
          ]),
          bytes.toString('hex'),
        ]
      }),
  ),
]

/** A token behind the name of its scheme. */
const TOKEN = /^\s*\S+\s+(\S+)\s*$/

/** Returns the characters that stand for these bytes alone in the base64 of a text with 0 to 2 odd bytes before them. */
function base64Within(bytes: Buffer, before: number, encoding: 'base64' | 'base64url'): string {
  const all = Buffer.concat([Buffer.alloc(before), bytes])
  return all.toString(encoding).slice(Math.ceil((before * 8) / 6), Math.floor((all.length * 8) / 6))
}

/**
 * Reads the values of secrets by name: those of the space, then those of the organization. Throws {@link SecretNotSet}.
 * Throws {@link SecretNotAllowed} unless the host of the request is in the secret's `hosts`, or a user who may write
 * the secret has last written the request.
 */
export async function resolveSecrets(deps: ResolveDeps, use: SecretUse, names: readonly string[]) {
  const { db } = deps
  const { organizationId, spaceId, url, isForeign } = use
  const values = new Map<string, string>()
  if (!names.length) return values
  const refuse = (name: string, reason: string) =>
    new SecretNotAllowed(`The secret ${name} was not sent to ${url.host}: ${reason}`)
  if (isForeign) throw refuse(names[0] ?? '', 'agents and skills of other organizations use no secrets')
  const scopes = [...(spaceId === null ? [] : [spaceId]), OF_ORGANIZATION]
  const rows = await db.secret.findMany({ where: { organizationId, scope: { in: scopes }, name: { in: [...names] } } })
  const missing = names.find((name) => !rows.some((row) => row.name === name))
  if (missing !== undefined) throw new SecretNotSet(`its credential ${missing} is not set`)
  const dataKey = await readDataKey(deps, organizationId)
  for (const name of names) {
    const found = rows.filter((row) => row.name === name)
    const row = (found.find(({ scope }) => scope === spaceId) ?? found[0])!
    if (!(row.hosts as string[]).includes(url.host) && !(await mayWrite(deps, use, row.scope))) {
      throw refuse(name, 'the host is not among its hosts')
    }
    if (url.protocol !== 'https:' && !deps.settings.ALLOW_PRIVATE_NETWORK)
      throw refuse(name, 'the address is not https')
    values.set(name, unseal(dataKey, contextOf(row), row.ciphertext).toString())
  }
  return values
}

/** Returns whether the writer of a request may write the secrets of a scope now. */
async function mayWrite({ db }: ResolveDeps, { organizationId, writtenBy: userId }: SecretUse, scope: string) {
  if (userId === null) return false
  const where = { organizationId_userId: { organizationId, userId } }
  const membership = await db.membership.findUnique({ where, select: { role: true } })
  if (!membership) return false
  if (membership.role !== 'member') return true
  if (scope === OF_ORGANIZATION) return false
  return (
    (await db.space.findFirst({ where: { organizationId, id: scope, ownerId: userId }, select: { id: true } })) !== null
  )
}

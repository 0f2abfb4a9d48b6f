import type { z } from 'zod'
import { type Actor, type Authorized, isAdmin, ownOrganization, permit } from '../auth/actor.ts'
import { audit } from '../auth/audit.ts'
import { dataKeyOf } from '../crypto/data-key.ts'
import { seal } from '../crypto/envelope.ts'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { badRequest, conflict, notFound } from '../errors.ts'
import { addressesOf } from '../lib/net/addresses.ts'
import { normalizeBaseAddress, type ProviderKind } from '../lib/net/base-address.ts'
import { addressOf, contextOf, readName, type Sealed } from './records.ts'
import { MAX_PROVIDERS, type Provider, type SetProvider } from './schema.ts'

type Row = Omit<Prisma.ProviderGetPayload<object>, 'ciphertext'>

const PUBLIC_COLUMNS = {
  organizationId: true,
  name: true,
  baseUrl: true,
  status: true,
  error: true,
  setAt: true,
  setBy: true,
} as const

const toProvider = ({ name, baseUrl, status, error, setAt, setBy }: Row): z.input<typeof Provider> => ({
  name,
  baseUrl,
  source: 'organization',
  setAt: setAt.toISOString(),
  setBy,
  status: status as z.input<typeof Provider>['status'],
  error,
})

/** Throws 403 for another organization, whether it exists or not. */
/** Finds providers that the caller may write: admins may. Throws 403 for others. */
export async function findWritable(
  actor: Actor,
  { orgId }: { orgId: string },
): Promise<Authorized<{ organizationId: string }>> {
  return permit({ organizationId: ownOrganization(actor, orgId) }, isAdmin(actor))
}

/**
 * GET /organizations/{orgId}/providers: those of the organization, and those of the server that it has not replaced.
 */
export async function list(actor: Actor, { db, models }: Deps, { orgId }: { orgId: string }) {
  const organizationId = ownOrganization(actor, orgId)
  const rows = await db.provider.findMany({
    where: { organizationId },
    select: PUBLIC_COLUMNS,
    orderBy: { name: 'asc' },
  })
  const own = new Set(rows.map(({ name }) => readName(name).segment))
  const ofServer = models
    .ofServer()
    // The built-in provider has no key or address to set.
    .filter((name) => name !== 'offline' && !own.has(name))
    .map((name) => ({
      name,
      baseUrl: null,
      source: 'server' as const,
      setAt: null,
      setBy: null,
      status: 'unchecked' as const,
      error: null,
    }))
  return { providers: [...rows.map(toProvider), ...ofServer] }
}

/**
 * Creates the record of PUT /organizations/{orgId}/providers/{name}, and lists the provider's models with it, unless
 * the server is paused. Throws 400 for an invalid or forbidden address, and 409 for a name of the server's providers.
 */
export async function draft({ models, settings, pause }: Deps, input: z.output<typeof SetProvider>) {
  const { name, apiKey, check } = input
  const headers = input.headers ?? {}
  const { kind, segment } = readName(name)
  if (name !== segment && models.isTaken(segment)) {
    throw conflict('Provider name is taken', { detail: `The server has a provider ${segment}: choose another name` })
  }
  const baseUrl = await checkAddress(kind, input.baseUrl, settings.ALLOW_PRIVATE_NETWORK)
  const endpoint = { baseUrl: addressOf(kind, baseUrl), apiKey, headers, isOperators: false }
  const isChecked = check && !pause.isPaused()
  const error = isChecked ? await models.check(kind, endpoint) : null
  const status = !isChecked ? 'unchecked' : error === null ? 'ok' : 'failed'
  return { name, baseUrl, sealed: { apiKey, headers } satisfies Sealed, status, error }
}

async function checkAddress(kind: ProviderKind, given: string | null | undefined, allowPrivate: boolean) {
  if (!given?.trim()) {
    if (kind === 'compatible') throw badRequest('Missing required field: baseUrl')
    return null
  }
  const url = URL.parse(given.trim())
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password) {
    throw badRequest('Invalid baseUrl. Must be an http or https address without user and password', {
      detail: 'Send an address like https://api.example.com/v1, and the key as `apiKey`.',
    })
  }
  // An unresolvable name is accepted: the check reports it, and each connection is checked again.
  const isKnown = await addressesOf(url, true)
  if (isKnown && !(await addressesOf(url, allowPrivate)))
    throw badRequest('Invalid baseUrl. The address is not allowed', {
      detail: 'It leads into a private network. The operator can allow it with ALLOW_PRIVATE_NETWORK.',
    })
  return normalizeBaseAddress(kind, given)
}

/** Stores a whole record and replaces one of the same name. Throws 400 beyond the limit. */
export async function store(
  actor: Actor,
  deps: Deps,
  { organizationId }: Authorized<{ organizationId: string }>,
  { sealed, ...content }: Awaited<ReturnType<typeof draft>>,
) {
  const now = deps.clock.now()
  const { name } = content
  const row = await deps.db.$transaction(async (tx) => {
    const dataKey = await dataKeyOf(tx, deps, organizationId, now)
    const others = await tx.provider.count({ where: { organizationId, name: { not: name } } })
    if (others >= MAX_PROVIDERS)
      throw badRequest(`Too many providers. At most ${MAX_PROVIDERS}`, {
        detail: `The organization has ${others} already: delete one first.`,
      })
    const context = contextOf({ organizationId, ...content })
    const ciphertext = seal(dataKey, context, Buffer.from(JSON.stringify(sealed)))
    const data = { ...content, ciphertext, setAt: now, setBy: actor.userId }
    const stored = await tx.provider.upsert({
      where: { organizationId_name: { organizationId, name } },
      create: { organizationId, ...data },
      update: data,
      select: PUBLIC_COLUMNS,
    })
    await audit(tx, actor, 'provider.update', `${organizationId}/${name}`, now)
    return stored
  })
  announce(deps, organizationId)
  return { provider: toProvider(row) }
}

/** DELETE /organizations/{orgId}/providers/{name}. Runs use the server's provider again, if there is one. */
export async function remove(actor: Actor, deps: Deps, input: { orgId: string; name: string }) {
  const { organizationId } = await findWritable(actor, input)
  const { name } = input
  await deps.db.$transaction(async (tx) => {
    const { count } = await tx.provider.deleteMany({ where: { organizationId, name } })
    if (!count) throw notFound('Provider')
    await audit(tx, actor, 'provider.delete', `${organizationId}/${name}`, deps.clock.now())
  })
  announce(deps, organizationId)
  return { message: 'Provider deleted successfully' }
}

const announce = ({ bus }: Deps, organizationId: string) => bus.publish('provider', [organizationId])

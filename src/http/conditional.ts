import { createHash, hash } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createAgentCache } from '../agents/agent-cache.ts'
import type { Actor } from '../auth/actor.ts'
import { lockRows, rowLock, type Tx } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { hasChanged } from '../errors.ts'
import { type IdempotencyKey, idempotent, inTransaction, namesNothing } from '../idempotency.ts'
import { checkInput } from '../lib/fields.ts'
import { toJson } from '../lib/preserialize.ts'
import type { Context } from '../trpc.ts'
import { sendText, writeJson } from './body.ts'
import { hasLongText } from './pieces.ts'
import { findRoute, isChange, type Route } from './routes.ts'

// Conditional requests (RFC 9110 section 13, contract-2.md section 1.17), and Idempotency-Key on PATCH and DELETE.

const AGENT = '/api/v1/agents/{id}'
const MISSION = '/api/v1/missions/{id}'

/** Returns the ETag of a response: an agent's contains its version, any other is a digest of the JSON. */
const etagOf = (route: Pick<Route, 'pattern'>, answer: object, json: string): string =>
  versionTag(route, answer) ?? digestTag(json)

const versionTag = ({ pattern }: Pick<Route, 'pattern'>, answer: object): string | null =>
  pattern === AGENT && 'agent' in answer ? `"v${(answer.agent as { version: number }).version}"` : null

/** Returns an ETag for a text. */
export const digestTag = (text: string): string => `"${hash('sha1', text, 'base64url')}"`

/** Writes an answer as JSON, with its ETag: see {@link sendTagged}. */
export async function tagged(route: Route, answer: object): Promise<{ json: string | Buffer; etag: string }> {
  if (!hasLongText(answer)) {
    const json = toJson(answer)
    return { json, etag: etagOf(route, answer, json) }
  }
  const digest = createHash('sha1')
  const json = await writeJson(answer, (bytes) => digest.update(bytes))
  return { json, etag: versionTag(route, answer) ?? `"${digest.digest('base64url')}"` }
}

/** Suffix of the ETag of an answer that a proxy has compressed: Apache's, and those of Jetty and Caddy. */
const COMPRESSED = /(?:-|--|;)(?:gzip|br|zstd|deflate)"$/

/**
 * Returns whether a list of ETags contains one, weak or strong, also with a proxy's suffix. `*` matches any. Quotes are
 * optional.
 */
export function names(header: string, etag: string): boolean {
  if (header.trim() === '*') return true
  const tags = header.match(/"[^"]*"/g) ?? header.split(',').map((tag) => `"${tag.trim().replace(/^W\//, '')}"`)
  return tags.some((tag) => tag === etag || tag.replace(COMPRESSED, '"') === etag)
}

/** Sends a single resource with its ETag, or 304 if the caller has it already. */
export function sendTagged(
  req: IncomingMessage,
  res: ServerResponse,
  { json, etag }: { json: string | Buffer; etag: string },
): void {
  const known = req.headers['if-none-match']
  if (known !== undefined && names(known, etag)) res.writeHead(304, { ETag: etag }).end()
  else sendText(res, 200, json, { ETag: etag })
}

/** A PATCH or DELETE with an Idempotency-Key or an If-Match. */
type Change = {
  route: Route
  /** The GET of the same path, if there is one. */
  twin: Route | null
  parameters: Record<string, string>
  input: Record<string, unknown>
  idempotency: IdempotencyKey | null
  ifMatch: string | undefined
}

/** A call of a procedure as a request to its route. `path` is the concrete one. */
type Call = Omit<Change, 'twin'> & Pick<Context, 'onAccepted'> & { path: string }

/** Calls the procedure of a route. A change with an `If-Match` or an Idempotency-Key depends on the resource's state. */
export async function callOnce(context: Context, { path, onAccepted, ...call }: Call): Promise<unknown> {
  const { route, input, idempotency, ifMatch } = call
  if (!isChange(route.method) || (ifMatch === undefined && !idempotency))
    return route.call({ ...context, idempotency, onAccepted }, async () => input)
  const twin = findRoute('GET', path)?.route
  return makeChange(context, { ...call, twin: twin?.isSingle ? twin : null })
}

/**
 * Makes a change with its precondition and Idempotency-Key in one transaction, so that no other write happens between
 * check and change. Throws 412 if the resource does not match `ifMatch`, and the errors of the procedure.
 */
async function makeChange(context: Context, change: Change): Promise<unknown> {
  const { route, input, idempotency } = change
  const { deps } = context
  // Outside the transaction, because it may record the use of the token.
  const actor = await context.authenticate()
  route.checkScope(actor)
  // The key's digest reads it before the procedure does.
  checkInput(input)
  const check = (own: Deps, tx: Tx) => checkMatch(context, own, tx, actor, change)
  if (route.pattern === MISSION && input.status === 'running') {
    // A procedure that starts a run has its own transaction.
    return route.call(
      { ...context, idempotency, precondition: (tx, db) => check({ ...deps, db }, tx) },
      async () => input,
    )
  }
  const effect = async (within: Deps, tx: Tx) => {
    // An uncommitted agent must not enter the shared cache.
    const own: Deps = { ...within, agentCache: createAgentCache() }
    await check(own, tx)
    return (await callIn(context, own, route, input)) as object
  }
  // A deletion's response contains nothing that could become invisible.
  const visible = () => (route.method === 'PATCH' && change.twin ? look(context, deps, change) : namesNothing())
  if (!idempotency) return inTransaction(deps, effect)
  return idempotent({ deps, actor, idempotency }, input, visible, (own, tx) => effect(own, tx as Tx))
}

/** Calls a procedure within a transaction. Rethrows its original error, which identifies a deadlock. */
async function callIn(context: Context, deps: Deps, route: Route, input: Record<string, unknown>): Promise<unknown> {
  try {
    return await route.call({ ...context, deps, idempotency: null, precondition: null }, async () => input)
  } catch (error) {
    const { cause } = error as Error
    throw cause instanceof Error && cause.name !== 'ZodError' && cause.name !== '$ZodError' ? cause : error
  }
}

/** Reads the resource as the caller may see it. */
const look = (context: Context, deps: Deps, { twin, parameters, input }: Change) =>
  callIn(context, deps, twin as Route, { ...('path' in input && { path: input.path }), ...parameters })

async function checkMatch(context: Context, deps: Deps, tx: Tx, actor: Actor, change: Change): Promise<void> {
  const { ifMatch, twin, parameters } = change
  if (ifMatch === undefined || ifMatch.trim() === '*') return
  if (!twin) throw hasChanged('This resource has no ETag: send the request without If-Match')
  // Checks that the caller can see the resource before its row is locked.
  await look(context, deps, change)
  const [table, id] = rowOf(twin.pattern, parameters, actor)
  if (table && id) await lockRows(tx, table, [id], rowLock(deps.settings))
  const current = (await look(context, deps, change)) as object
  if (!names(ifMatch, etagOf(twin, current, toJson(current)))) throw hasChanged()
}

const TABLES = {
  agents: 'Agent',
  chats: 'Chat',
  mcps: 'McpServer',
  media: 'Media',
  missions: 'Mission',
  organizations: 'Organization',
  skills: 'Skill',
  spaces: 'Space',
  tasks: 'Task',
} as const

/** Returns the row that every write of a resource locks. */
function rowOf(pattern: string, { id }: Record<string, string>, { userId }: Actor) {
  const [, , , name = ''] = pattern.split('/')
  if (name === 'profile') return ['User', userId] as const
  return [Object.hasOwn(TABLES, name) ? TABLES[name as keyof typeof TABLES] : undefined, id] as const
}

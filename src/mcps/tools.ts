import type { JSONSchema7 } from '@ai-sdk/provider'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import { conflict } from '../errors.ts'
import { AuthorizationNeeded } from '../executions/engine/run/abort.ts'
import type { Tool, Toolbox, ToolUser } from '../executions/engine/run/tools.ts'
import type { McpClient } from './client/client.ts'
import { type ConnectDeps, type ConnectFor, connect } from './connect.ts'
import { modeIn, permissionsOf } from './modes.ts'
import {
  createWanted,
  nameTools,
  offeredTools,
  type Prefixed,
  type ToolLists,
  toToolName,
  unknownNames,
  withPrefixes,
} from './naming.ts'
import { connectName, reportOutcomes, unreachableText, unusableText } from './outcomes.ts'

/** Maximum number of servers of one run. */
const MAX_SERVERS = 50

type ServerRow = Prisma.McpServerGetPayload<object>

/** `unusable`: a sentence for each unavailable server. `unknown`: allowed names that match no tool. */
type ServerTools = Required<Toolbox> & { unusable: readonly string[]; unknown: readonly string[] }

type Server = Prefixed & { row: ServerRow }

type Opened = { server: Server; client: McpClient; use: ConnectFor }

/**
 * Opens the tools of a run's MCP servers: those of its agent, unless it belongs to another organization, and those of
 * its space. No tool gets a name in `taken`. Each server has one connection, closed with the toolbox. An unreachable
 * server is left out and the model is informed. A server that the run's user must connect to first has one tool, which
 * waits for that; the others appear when the run resumes. Rejects with the signal's reason.
 */
export async function openMcpTools(
  deps: ConnectDeps,
  user: ToolUser,
  lists: ToolLists,
  taken: ReadonlySet<string>,
): Promise<ServerTools> {
  const ofAgent = await serversOfAgent(deps.db, user)
  const found = await deps.db.mcpServer.findMany({
    where: serversOf(user, ofAgent),
    orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
    take: MAX_SERVERS,
  })
  const servers = withPrefixes(
    found
      .filter(({ isActive }) => isActive)
      .map((row) => ({ id: row.id, name: row.name, isOwn: ofAgent.includes(row.id), row })),
  )
  const use = { ...runOf(user), isWanted: createWanted(lists) }
  const outcomes = await Promise.allSettled(servers.map(({ row }) => connect(deps, row, user.signal, use)))
  const opened = servers.flatMap((server, index): Opened | [] => {
    const outcome = outcomes[index]
    return outcome?.status === 'fulfilled' ? { server, client: outcome.value, use } : []
  })
  const close = () => closeAll(deps.db, opened)
  const reportOpened = async () => {
    user.signal.throwIfAborted()
    await countUse(deps, user, opened)
    return reportOutcomes(deps, user, servers, outcomes, describeMissing(ofAgent, found))
  }
  const { unusable, unconnected, instructions } = await reportOpened().catch(async (error: unknown) => {
    await close()
    throw error
  })
  const all = listed(opened)
  const unknown = unknownNames(all, servers, lists)
  // A resumed run may have asked for a connection that exists by now.
  const connected = user.row.attempt > 1 ? opened.filter(({ server }) => server.row.auth === 'oauth') : []
  const connecting = [
    ...(lists.allowed === null || unknown.length ? unconnected : []).map((server) => connectTool(server, null)),
    ...connected.map(({ server, client }) => connectTool(server, client)),
  ]
  const names = new Set([...taken, ...connecting.map(({ name }) => name)])
  const nameOf = createNames(names)
  const offer = (all: readonly Listing[]) =>
    nameOf(offeredTools(all, servers, lists)).map((tool) => toTool(deps, user, tool))
  const tools = offer(all)
  // The other names may be those of tools that are not known yet.
  const whyMissing = (target: string) => {
    const away = servers.find(({ row }, index) => outcomes[index]?.status === 'rejected' && isOf(row, target))
    return away ? `${unreachableText(away)} Nothing was called.` : null
  }
  return {
    tools: [...tools, ...connecting],
    instructions,
    whyMissing,
    async refresh() {
      const changed = await Promise.all(opened.map(({ client }) => client.refresh(user.signal)))
      return changed.includes(true) ? [...offer(listed(opened)), ...connecting] : null
    },
    close,
    unusable,
    unknown: unconnected.length ? [] : unknown,
  }
}

/** Returns the tool with which a model asks the run's user to connect to a server. It has no client until then. */
const connectTool = ({ id, name, prefix, row }: Server, client: McpClient | null): Tool => ({
  name: connectName(prefix),
  target: `connect:${id}`,
  description: `Asks the user to connect to the MCP server "${name}", and waits. Its tools can be used afterwards.`,
  inputSchema: { type: 'object', properties: {} },
  mode: 'allow',
  server: { id, name, origin: new URL(row.url).origin },
  async call() {
    if (!client) throw new AuthorizationNeeded({ id, name })
    return { content: `The user is connected to the MCP server "${name}". Its tools can be used now.`, isError: false }
  },
})

/** Secrets of the organization are for its own agents. */
const runOf = ({ row, agent }: ToolUser) => ({
  userId: row.userId,
  spaceId: row.spaceId,
  isForeign: agent.organizationId !== row.organizationId,
})

/** Describes the servers of a run that are disabled or were deleted while the agent still refers to them. */
function describeMissing(ofAgent: readonly string[], found: readonly ServerRow[]): string[] {
  const known = new Set(found.map(({ id }) => id))
  const deleted = found.length < MAX_SERVERS ? ofAgent.filter((id) => !known.has(id)) : []
  return [
    ...found.filter(({ isActive }) => !isActive).map((row) => unusableText(row, 'it is disabled')),
    ...(deleted.length ? ['An MCP server of this agent was deleted: set mcpInstanceIds of the agent again'] : []),
  ]
}

/**
 * Returns the servers of the run's agent, unless it belongs to another organization. A resumed run uses the agent as of
 * its start, without servers removed from the agent since (contract-2.md section 8.4).
 */
async function serversOfAgent(db: Deps['db'], { row, agent }: ToolUser): Promise<string[]> {
  if (agent.organizationId !== row.organizationId) return []
  const then = agent.mcpInstanceIds as string[]
  if (row.attempt <= 1 || !then.length) return then
  const now = await db.agent.findUnique({ where: { id: row.agentId }, select: { mcpInstanceIds: true } })
  return then.filter((id) => (now?.mcpInstanceIds as string[] | undefined)?.includes(id))
}

function serversOf({ row }: ToolUser, ofAgent: readonly string[]): Prisma.McpServerWhereInput {
  const { organizationId, spaceId } = row
  return {
    organizationId,
    OR: [{ id: { in: [...ofAgent] } }, { spaceRefs: { some: { spaceId, enabled: true } } }],
  }
}

/** Closes the connections. Sends nothing more to servers that were deleted, disabled or moved meanwhile. */
async function closeAll(db: Deps['db'], opened: readonly Opened[]): Promise<void> {
  if (!opened.length) return
  const where = { id: { in: opened.map(({ server }) => server.id) }, isActive: true }
  const known = await db.mcpServer.findMany({ where, select: { id: true, url: true } }).catch(() => [])
  const addresses = new Map(known.map(({ id, url }) => [id, url]))
  const isKnown = ({ row }: Opened['server']) => addresses.get(row.id) === row.url
  await Promise.allSettled(opened.map(({ server, client }) => client.close(isKnown(server))))
}

/** Counts the use once per run, regardless of how often it resumes. */
async function countUse({ db }: Pick<Deps, 'db'>, { row }: ToolUser, opened: readonly Opened[]): Promise<void> {
  if (!opened.length || row.attempt > 1) return
  const where = { id: { in: opened.map(({ server }) => server.id) } }
  await db.mcpServer.updateMany({ where, data: { usageCount: { increment: 1 } } })
}

/** Returns the target of a call: an equal tool at another address is another one. */
const targetOf = ({ id, url }: Pick<ServerRow, 'id' | 'url'>, name: string) => JSON.stringify([id, url, name])

/** Returns whether the target of a call is a tool of this server. */
const isOf = (row: ServerRow, target: string) => target.startsWith(targetOf(row, '').slice(0, -'""]'.length))

/** Returns the tools that are not denied. */
const listed = (opened: readonly Opened[]) =>
  opened.flatMap((one) =>
    one.client.tools.flatMap((tool) => {
      const mode = modeOf(one.server.row, tool.name)
      return mode === 'deny'
        ? []
        : { opened: one, server: one.server, tool, mode, name: tool.name, plain: toToolName(tool.name) }
    }),
  )

type Listing = ReturnType<typeof listed>[number]
type Listed = Listing & { modelName: string }

/** Names the tools of a run. Tools that were named before keep their names. */
function createNames(taken: ReadonlySet<string>) {
  const names = new Map<string, string>()
  return (offered: readonly Listing[]): Listed[] => {
    const keyOf = ({ server, tool }: Listing) => targetOf(server.row, tool.name)
    const added = offered.filter((one) => !names.has(keyOf(one)))
    for (const one of nameTools(added, new Set([...taken, ...names.values()]))) names.set(keyOf(one), one.modelName)
    return offered.map((one) => ({ ...one, modelName: names.get(keyOf(one)) ?? one.plain }))
  }
}

function toTool(deps: ConnectDeps, user: ToolUser, { opened, server, tool, mode, plain, modelName }: Listed): Tool {
  const { id, name, url } = server.row
  return {
    name: modelName,
    aliases: [tool.name, plain, `${server.prefix}__${plain}`, `${id}/${tool.name}`],
    target: targetOf(server.row, tool.name),
    description: tool.description,
    inputSchema: tool.inputSchema as JSONSchema7,
    mode,
    server: { id, name, origin: originOf(url) },
    async recheck() {
      const now = await user.server(id)
      if (now?.url !== url) throw conflict(`The MCP server "${name}" is gone by now, or has moved: nothing was called`)
      if (!now.isAttached) throw conflict(`The MCP server "${name}" is not attached any more: nothing was called`)
      const modeNow = modeOf({ ...server.row, ...now }, tool.name)
      if (modeNow === 'deny') throw conflict(`The tool ${modelName} is denied by now: nothing was called`)
      if (now.updatedAt !== server.row.updatedAt.getTime()) await reconnect(deps, user, opened)
      return mode === 'ask' ? mode : modeNow
    },
    async describe(signal) {
      const tools = await opened.client.list(signal).catch((error: unknown) => {
        signal.throwIfAborted()
        throw toUnreachable(server, error)
      })
      const found = tools.find((one) => one.name === tool.name)
      return found ? { description: found.description, inputSchema: found.inputSchema as JSONSchema7 } : null
    },
    call: (input, { signal, progressed }) => opened.client.call(tool.name, input, signal, progressed),
  }
}

/** Returns the error of a server that cannot be reached, or an {@link AuthorizationNeeded}. */
const toUnreachable = (server: Server, error: unknown) =>
  error instanceof AuthorizationNeeded
    ? error
    : conflict(unreachableText(server), { code: 'mcp_unreachable', cause: error })

/** Reconnects to a changed server, because the open connection has its previous headers and credentials. */
async function reconnect(deps: ConnectDeps, user: ToolUser, opened: Opened): Promise<void> {
  const { signal } = user
  const { server, client } = opened
  const row = await deps.db.mcpServer.findUnique({ where: { id: server.id } })
  if (row?.url !== server.row.url) throw conflict(unreachableText(server))
  opened.client = await connect(deps, row, signal, opened.use).catch((error: unknown) => {
    signal.throwIfAborted()
    throw toUnreachable(server, error)
  })
  server.row = row
  client.close(false).catch(() => {})
}

/** Returns the permission of a tool (contract.md section 7). */
const modeOf = (server: Pick<ServerRow, 'permissions' | 'operatorModes'>, name: string) =>
  modeIn(permissionsOf(server), name)

/** Returns the origin of an address. An address of a program, such as `stdio:files`, stays as it is. */
const originOf = (url: string) => (url.startsWith('stdio:') ? url : new URL(url).origin)

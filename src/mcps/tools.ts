import type { JSONSchema7 } from '@ai-sdk/provider'
import type { Prisma } from '../db/client.ts'
import type { Deps } from '../deps.ts'
import type { IsOffered, Tool, Toolbox, ToolUser } from '../executions/engine/tools.ts'
import type { McpClient } from './client.ts'
import { connect, permissionsOf } from './service.ts'

/** Of one run. */
const MAX_SERVERS = 50
const MAX_TOOL_NAME = 64
/** How much of a server's name is put before the name of a tool. */
const MAX_PREFIX = 20

type ServerRow = Prisma.McpServerGetPayload<object>
type Opened = { server: ServerRow; client: McpClient }

/**
 * The tools of the MCP servers of a run: those of its agent, unless it is another organization's, and those of its
 * space; none has a name that is `taken`. Each server has one connection, which ends with the toolbox. One that cannot be
 * reached is left out, and the model is told so. Rejects with the signal's reason.
 */
export async function openMcpTools(
  deps: Pick<Deps, 'db' | 'log' | 'settings' | 'wrappingKey'>,
  user: ToolUser,
  isOffered: IsOffered,
  taken: ReadonlySet<string>,
): Promise<Toolbox> {
  const servers = await deps.db.mcpServer.findMany({
    where: serversOf(user),
    orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
    take: MAX_SERVERS,
  })
  const outcomes = await Promise.allSettled(servers.map((server) => connect(deps, server, user.signal)))
  const opened = servers.flatMap((server, index): Opened | [] => {
    const outcome = outcomes[index]
    return outcome?.status === 'fulfilled' ? { server, client: outcome.value } : []
  })
  const close = async () => void (await Promise.allSettled(opened.map(({ client }) => client.close())))
  try {
    user.signal.throwIfAborted()
    await countUse(deps, user, opened)
  } catch (error) {
    await close()
    throw error
  }
  const instructions = servers.flatMap((server, index) => {
    const outcome = outcomes[index]
    if (outcome?.status === 'fulfilled') return outcome.value.hasMore ? hasMore(server) : []
    const reason: unknown = outcome?.reason
    deps.log.warn({ mcpId: server.id, executionId: user.row.id, err: reason }, 'an MCP server cannot be reached')
    return isAway(server)
  })
  return { tools: toTools(user, opened, isOffered, taken), instructions, close }
}

const isAway = ({ name }: ServerRow) =>
  `The tools of the MCP server "${name}" cannot be used now: it cannot be reached.`
const hasMore = ({ name }: ServerRow) =>
  `The MCP server "${name}" has more tools than can be used: these are its first ones.`

function serversOf({ row, agent }: ToolUser): Prisma.McpServerWhereInput {
  const { organizationId, spaceId } = row
  const ofAgent = agent.organizationId === organizationId ? (agent.mcpInstanceIds as string[]) : []
  return {
    organizationId,
    isActive: true,
    OR: [{ id: { in: ofAgent } }, { spaceRefs: { some: { spaceId, enabled: true } } }],
  }
}

/** Once for a run, however often it goes on. */
async function countUse({ db }: Pick<Deps, 'db'>, { row }: ToolUser, opened: readonly Opened[]): Promise<void> {
  if (!opened.length || row.attempt > 1) return
  const where = { id: { in: opened.map(({ server }) => server.id) } }
  await db.mcpServer.updateMany({ where, data: { usageCount: { increment: 1 } } })
}

/** All that are not denied and that the agent may have, by names that the model can call. */
function toTools(user: ToolUser, opened: readonly Opened[], isOffered: IsOffered, taken: ReadonlySet<string>): Tool[] {
  const found = opened.flatMap(({ server, client }) =>
    client.tools.flatMap((tool) => {
      const mode = modeOf(server, tool.name)
      return mode === 'deny' ? [] : { server, client, tool, mode, plain: toToolName(tool.name) }
    }),
  )
  const names = new Set([...taken, ...found.map(({ plain }) => plain)])
  const offered = found.flatMap((one) => {
    const prefixed = toToolName(`${toToolName(one.server.name).slice(0, MAX_PREFIX)}__${one.plain}`)
    const unique = vacant(prefixed, names)
    names.add(unique)
    return isOffered(new Set([one.tool.name, one.plain, prefixed, unique])) ? { ...one, unique } : []
  })
  const shared = Map.groupBy(offered, ({ plain }) => plain)
  return offered.map(({ server, client, tool, mode, plain, unique }) => ({
    name: taken.has(plain) || (shared.get(plain)?.length ?? 0) > 1 ? unique : plain,
    target: JSON.stringify([server.id, server.url, tool.name]),
    description: tool.description,
    inputSchema: tool.inputSchema as JSONSchema7,
    mode,
    async call(input, { signal }) {
      await user.actor()
      return client.call(tool.name, input, signal)
    },
  }))
}

/** What its permissions say of a tool: the entry of its name, else that of all others (contract.md section 7). */
function modeOf(server: ServerRow, name: string): 'ask' | 'allow' | 'deny' {
  const permissions = permissionsOf(server)
  const entry = permissions.find(({ tool }) => tool === name) ?? permissions.find(({ tool }) => tool === '*')
  return entry?.mode ?? 'allow'
}

/** What a model's provider takes as a tool's name. */
const toToolName = (text: string) => text.replace(/[^A-Za-z0-9_-]+/g, '_').slice(0, MAX_TOOL_NAME) || '_'

/** The name, or the first like it that nobody has. */
function vacant(name: string, taken: ReadonlySet<string>): string {
  for (let count = 1; ; count++) {
    const ending = count === 1 ? '' : `_${count}`
    const candidate = name.slice(0, MAX_TOOL_NAME - ending.length) + ending
    if (!taken.has(candidate)) return candidate
  }
}

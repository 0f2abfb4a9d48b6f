import { chatTools } from '../chats/tools.ts'
import type { Deps } from '../deps.ts'
import { AppError } from '../errors.ts'
import { fileTools } from '../files/tools.ts'
import { cut } from '../lib/text.ts'
import { openMcpTools } from '../mcps/tools.ts'
import { checkMode, readModes } from '../organizations/policy.ts'
import { openSkills } from '../skills/tools.ts'
import { taskTools } from '../tasks/tools.ts'
import { webTools } from '../web/tools.ts'
import { delegates } from './delegate.ts'
import type { IsOffered, Tool, Toolbox, ToolUser } from './engine/run/tools.ts'

/**
 * Opens all tools of a run: see `OpenTools`. Built-in tools must be named in a skill's `builtInTools` or the agent's
 * `allowedTools`. A list of allowed tools excludes all others except those that skills need; disallowed tools, by any
 * of their names, are always excluded. A built-in tool takes precedence over another of the same name. If a required
 * tool or MCP server is missing, a run of an agent with `requireTools` fails with an AppError (contract-2.md section
 * 1.8); others get a warning. How the lists name the tools of MCP servers: `offeredTools` (mcps/naming.ts).
 */
export async function openTools(deps: Deps, user: ToolUser): Promise<Toolbox> {
  const allowed = new Set(user.agent.allowedTools as string[])
  const disallowed = new Set(user.agent.disallowedTools as string[])
  const builtIn = [
    ...taskTools(deps, user),
    ...fileTools(deps, user),
    ...chatTools(deps, user),
    ...webTools(deps, user, () => skills.hasForeign),
  ]
  const allowedOthers = allowed.difference(new Set(builtIn.map(({ name }) => name)))
  const isOffered: IsOffered = (names) =>
    disallowed.isDisjointFrom(names) && (!allowed.size || !allowedOthers.isDisjointFrom(names))

  const lists = { allowed: allowed.size ? allowedOthers : null, disallowed }

  const skills = await openSkills(deps, user)
  const needed = builtIn.filter(({ name }) => skills.builtInTools.has(name) || allowed.has(name))
  const wanted = needed.filter(({ name }) => !disallowed.has(name))
  const own = [
    ...skills.tools.filter(({ name }) => !disallowed.has(name)),
    ...(await permitted(deps, user, wanted)),
    ...(await delegates(deps, user, isOffered)),
  ]
  const ownNames = new Set(own.map(({ name }) => name))
  const ofServers = await openMcpTools(deps, user, lists, ownNames)
  const unknown = ofServers.unknown.filter((name) => !ownNames.has(name))
  const missing = unknown.length ? [missingToolsWarning(user, unknown)] : []
  for (const text of missing) user.warn('tool_missing', text)
  const absent = [...ofServers.unusable, ...missing]
  if (user.agent.requireTools && absent.length) {
    await ofServers.close()
    throw new AppError(502, 'Tools are missing', { code: 'mcp_unreachable', detail: cut(absent.join('. '), 500) })
  }
  return {
    tools: [...own, ...ofServers.tools],
    instructions: [...skills.instructions, ...ofServers.instructions],
    whyMissing: ofServers.whyMissing,
    async refresh() {
      const changed = await ofServers.refresh()
      return changed && [...own, ...changed]
    },
    close: ofServers.close,
  }
}

/**
 * Returns the warning about missing tools. It has no names of another organization's agent, whose allow list is
 * confidential.
 */
const missingToolsWarning = ({ row, agent }: ToolUser, names: readonly string[]) =>
  agent.organizationId === row.organizationId
    ? `allowedTools names tools that do not exist: ${names.join(', ')}`
    : 'Some of the tools that this agent is allowed do not exist'

/**
 * Returns the built-in tools that the run may call, with the mode set by organization, space and agent (contract-2.md
 * section 2.11). Each call checks again.
 */
async function permitted({ db }: Deps, user: ToolUser, tools: readonly Tool[]): Promise<Tool[]> {
  if (!tools.length) return []
  const modeOf = await readModes(db, user)
  return tools.flatMap((tool) => {
    const mode = modeOf(tool.name)
    return mode === 'deny' ? [] : { ...tool, mode, recheck: () => checkMode(db, user, tool.name) }
  })
}

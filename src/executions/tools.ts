import type { Deps } from '../deps.ts'
import { AppError } from '../errors.ts'
import { fileTools } from '../files/tools.ts'
import { cut } from '../lib/text.ts'
import { openMcpTools } from '../mcps/tools.ts'
import { checkMode, readModes } from '../organizations/policy.ts'
import { openSkills } from '../skills/tools.ts'
import { taskTools } from '../tasks/tools.ts'
import { delegates } from './delegate.ts'
import type { IsOffered, Tool, Toolbox, ToolUser } from './engine/run/tools.ts'

/**
 * Opens all that a run can call: see `OpenTools`. What the service itself offers is there for those who name it, in a
 * skill's `builtInTools` or the agent's `allowedTools`. A list of allowed tools then leaves out all others, except what
 * skills need; what is disallowed, by any of its names, is left out in any case. Of two tools of a name, the service's
 * own has it. A run of an agent with `requireTools` fails with an AppError if a tool or an MCP server is missing that it
 * is to have (contract-2.md section 1.8); others are warned of it. How the lists name the tools of MCP servers:
 * `offeredTools` (mcps/naming.ts).
 */
export async function openTools(deps: Deps, user: ToolUser): Promise<Toolbox> {
  const allowed = new Set(user.agent.allowedTools as string[])
  const disallowed = new Set(user.agent.disallowedTools as string[])
  const builtIn = [...taskTools(deps, user), ...fileTools(deps, user)]
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
  const missing = unknown.length ? [namesMissing(user, unknown)] : []
  for (const text of missing) user.warn('tool_missing', text)
  const absent = [...ofServers.unusable, ...missing]
  if (user.agent.requireTools && absent.length) {
    await ofServers.close()
    throw new AppError(502, 'Tools are missing', { code: 'mcp_unreachable', detail: cut(absent.join('. '), 500) })
  }
  return {
    tools: [...own, ...ofServers.tools],
    instructions: [...skills.instructions, ...ofServers.instructions],
    close: ofServers.close,
  }
}

/** Another organization's agent keeps what its list says to itself. */
const namesMissing = ({ row, agent }: ToolUser, names: readonly string[]) =>
  agent.organizationId === row.organizationId
    ? `allowedTools names tools that are not there: ${names.join(', ')}`
    : 'Some of the tools that this agent is allowed are not there'

/**
 * Those of the built-in tools that the run may call, with the mode that organization, space and agent give them
 * (contract-2.md section 2.11). Whether they do so still is asked again at each call.
 */
async function permitted({ db }: Deps, user: ToolUser, tools: readonly Tool[]): Promise<Tool[]> {
  if (!tools.length) return []
  const modeOf = await readModes(db, user)
  return tools.flatMap((tool) => {
    const mode = modeOf(tool.name)
    return mode === 'deny' ? [] : { ...tool, mode, recheck: () => checkMode(db, user, tool.name) }
  })
}

import type { Deps } from '../deps.ts'
import { fileTools } from '../files/tools.ts'
import { openMcpTools } from '../mcps/tools.ts'
import { openSkills } from '../skills/tools.ts'
import { taskTools } from '../tasks/tools.ts'
import { delegates } from './delegate.ts'
import type { Tool, Toolbox, ToolUser } from './engine/tools.ts'

/**
 * Opens all that a run can call: see `OpenTools`. What the service itself offers is there for those who name it, in a
 * skill's `builtInTools` or the agent's `allowedTools`. A list of allowed tools then leaves out all others, except what
 * skills need; what is disallowed is left out in any case. Of two tools of a name, the service's own is meant.
 */
export async function openTools(deps: Deps, user: ToolUser): Promise<Toolbox> {
  const [skills, ofServers] = await Promise.allSettled([openSkills(deps, user), openMcpTools(deps, user)])
  const close = async () => void (ofServers.status === 'fulfilled' && (await ofServers.value.close()))
  try {
    if (skills.status === 'rejected') throw skills.reason
    if (ofServers.status === 'rejected') throw ofServers.reason
    const allowed = new Set(user.agent.allowedTools as string[])
    const disallowed = new Set(user.agent.disallowedTools as string[])
    const { tools: loaders, builtInTools } = skills.value
    const builtIn = [...taskTools(deps, user), ...fileTools(deps, user)].filter(
      ({ name }) => builtInTools.has(name) || allowed.has(name),
    )
    const others = [...(await delegates(deps, user)), ...ofServers.value.tools].filter(
      ({ name }) => !allowed.size || allowed.has(name) || builtInTools.has(name),
    )
    const tools = new Map<string, Tool>()
    for (const tool of [...loaders, ...builtIn, ...others]) {
      if (!tools.has(tool.name) && !disallowed.has(tool.name)) tools.set(tool.name, tool)
    }
    return {
      tools: [...tools.values()],
      instructions: [...skills.value.instructions, ...ofServers.value.instructions],
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

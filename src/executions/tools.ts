import type { Deps } from '../deps.ts'
import { openMcpTools } from '../mcps/tools.ts'
import type { Tool, Toolbox, ToolUser } from './engine/tools.ts'

/** Opens all that a run can call: see `OpenTools`. */
export async function openTools(deps: Deps, user: ToolUser): Promise<Toolbox> {
  const boxes = await Promise.all([openMcpTools(deps, user)])
  const tools = new Map<string, Tool>()
  for (const tool of boxes.flatMap((box) => box.tools)) if (!tools.has(tool.name)) tools.set(tool.name, tool)
  return {
    tools: [...tools.values()],
    instructions: boxes.flatMap(({ instructions }) => instructions),
    async close() {
      await Promise.all(boxes.map((box) => box.close()))
    },
  }
}

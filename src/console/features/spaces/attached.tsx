import { useState } from 'react'
import { callMutation } from '../../api.ts'
import { useEdits } from '../../components/edits.ts'
import { Form } from '../../components/form.tsx'
import { useGuard } from '../../components/guard.ts'
import { ToolModes } from '../../components/tool-modes.tsx'
import { readNow, useAction } from '../../queries.ts'
import { agents } from '../../texts/agents.ts'
import { spaces as t } from '../../texts/spaces.ts'
import { texts } from '../../texts.ts'
import { AgentTicks } from '../agents/agent-picker.tsx'
import { McpTicks, SkillTicks } from '../agents/attached-ticks.tsx'
import { SkillUpdates } from '../skills/skill-updates.tsx'
import type { SpaceShape } from './spaces.tsx'

/** Ids in a saved list that the person can change. Changes that others make meanwhile stay. */
function useIds(saved: readonly string[]) {
  const [wanted, setWanted] = useState<Readonly<Record<string, boolean>>>({})
  const added = Object.keys(wanted).filter((id) => wanted[id] && !saved.includes(id))
  const removed = saved.filter((id) => wanted[id] === false)
  const isChanged = added.length + removed.length > 0
  if (!isChanged && Object.keys(wanted).length) setWanted({})
  const value = [...saved.filter((id) => !removed.includes(id)), ...added]
  const onChange = (ids: readonly string[]) => {
    const next = { ...wanted }
    for (const id of value) next[id] = ids.includes(id)
    for (const id of ids) next[id] = true
    setWanted(next)
  }
  return { added, removed, isChanged, ticks: { value, onChange } }
}

const LABELS = { permissions: texts.toolModes.title }

/** The agents, skills, MCP servers and tool modes of a space, which apply to every run in it. */
export function Attached({ space, isReadOnly }: { space: SpaceShape; isReadOnly: boolean }) {
  const agentIds = useIds(space.assignedAgents)
  const skillIds = useIds(space.skillIds)
  const mcpIds = useIds(space.pluginIds)
  const { id, permissions } = space
  const {
    draft,
    edits,
    isChanged: isEdited,
    set,
    check,
  } = useEdits({ permissions }, LABELS, async () => {
    const { space: now } = await readNow('spaces.get', { id })
    return { permissions: now.permissions }
  })
  const isChanged = isEdited || [agentIds, skillIds, mcpIds].some((ids) => ids.isChanged)
  useGuard(isChanged)
  const save = useAction(
    () =>
      check(() =>
        callMutation('spaces.update', {
          id,
          addAgents: agentIds.added,
          removeAgents: agentIds.removed,
          addSkills: skillIds.added,
          removeSkills: skillIds.removed,
          addMcps: mcpIds.added,
          removeMcps: mcpIds.removed,
          ...edits,
        }),
      ),
    { changes: ['spaces.'], done: texts.saved, quiet: true },
  )
  return (
    <Form save={save} isReady={isChanged} isReadOnly={isReadOnly} className="max-w-3xl">
      <p className="mb-4 text-soft">{t.attachedHelp}</p>
      <AgentTicks label={texts.nav.agents} empty={agents.emptyTitle} {...agentIds.ticks} />
      <SkillTicks {...skillIds.ticks} />
      <SkillUpdates refs={space.skillRefs} adopt={(skillId) => callMutation('spaces.updateSkill', { id, skillId })} />
      <McpTicks {...mcpIds.ticks} />
      <ToolModes help={t.permissionsHelp} value={draft.permissions} onChange={(permissions) => set({ permissions })} />
    </Form>
  )
}

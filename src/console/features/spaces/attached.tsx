import { useQuery } from '@tanstack/react-query'
import { callMutation } from '../../api.ts'
import { Ticks } from '../../components/field.tsx'
import { Form } from '../../components/form.tsx'
import { useDraft } from '../../components/guard.ts'
import { Loading, Problem } from '../../components/page.tsx'
import { query, useAction } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { AgentTicks } from '../agents/agent-picker.tsx'
import type { SpaceShape } from './spaces.tsx'

const t = texts.spaces

const without = (some: readonly string[], others: readonly string[]) => some.filter((id) => !others.includes(id))

/** The agents, skills and MCP servers of a space, which every run in it may use. */
export function Attached({ space, isReadOnly }: { space: SpaceShape; isReadOnly: boolean }) {
  const skills = useQuery(query('skills.list', { limit: 1000 }))
  const mcps = useQuery(query('mcps.list', { limit: 1000 }))
  const before = { agents: space.assignedAgents, skills: space.skillIds, mcps: space.pluginIds }
  const [chosen, setChosen] = useDraft(before)
  const save = useAction(
    () =>
      callMutation('spaces.update', {
        id: space.id,
        addAgents: without(chosen.agents, before.agents),
        removeAgents: without(before.agents, chosen.agents),
        addSkills: without(chosen.skills, before.skills),
        removeSkills: without(before.skills, chosen.skills),
        addMcps: without(chosen.mcps, before.mcps),
        removeMcps: without(before.mcps, chosen.mcps),
      }),
    { changes: ['spaces.'], done: texts.saved, quiet: true },
  )
  const failed = skills.error ?? mcps.error
  if (failed) {
    const retry = () => void Promise.all([skills, mcps].map((each) => each.refetch()))
    return <Problem error={failed} retry={retry} />
  }
  if (!skills.data || !mcps.data) return <Loading />
  const isSame = (['agents', 'skills', 'mcps'] as const).every(
    (kind) => !without(chosen[kind], before[kind]).length && !without(before[kind], chosen[kind]).length,
  )
  return (
    <Form save={save} isReady={!isSame} isReadOnly={isReadOnly} className="max-w-3xl">
      <p className="mb-4 text-soft">{t.attachedHelp}</p>
      <AgentTicks
        label={texts.nav.agents}
        empty={texts.agents.emptyTitle}
        value={chosen.agents}
        onChange={(ids) => setChosen({ ...chosen, agents: ids })}
      />
      <Ticks
        label={texts.nav.skills}
        empty={texts.agents.noSkills}
        options={Object.values(skills.data.skills)
          .flat()
          .map(({ id, displayName, name, description }) => ({
            value: id,
            label: displayName || name,
            detail: description,
          }))}
        value={chosen.skills}
        onChange={(ids) => setChosen({ ...chosen, skills: ids })}
      />
      <Ticks
        label={texts.nav.mcps}
        empty={texts.agents.noMcps}
        options={mcps.data.mcps.map(({ id, name, url }) => ({ value: id, label: name, detail: url }))}
        value={chosen.mcps}
        onChange={(ids) => setChosen({ ...chosen, mcps: ids })}
      />
    </Form>
  )
}

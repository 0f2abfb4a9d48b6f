import { texts } from '../../texts.ts'
import { MAX_AGENTS, useAgents, useMembers } from '../agents/names.ts'

const t = texts.tasks

/** The people and agents that a task can be assigned to. */
export function useAssignees() {
  const members = useMembers()
  const { agents, isPending } = useAgents()
  const people = (members.data?.members ?? []).map(({ userId, name }) => ({ id: userId, name }))
  const bots = agents.map(({ id, name }) => ({ id, name }))
  const names = new Map([...people, ...bots].map(({ id, name }) => [id, name]))
  return {
    people,
    agents: bots,
    nameOf: (id: string) => names.get(id) ?? (isPending || members.isPending ? '…' : t.formerAssignee),
    isAgent: (id: string) =>
      bots.some((each) => each.id === id) || (agents.length >= MAX_AGENTS && !people.some((each) => each.id === id)),
  }
}

type Assignees = Pick<ReturnType<typeof useAssignees>, 'people' | 'agents' | 'nameOf'> & {
  /** The selected id, which may be of a former member, or of an agent that the person cannot see. */
  chosen: string
}

/** The same as options of a select. */
export const AssigneeOptions = ({ people, agents, nameOf, chosen }: Assignees) => (
  <>
    {chosen && ![...people, ...agents].some(({ id }) => id === chosen) && (
      <option value={chosen}>{nameOf(chosen)}</option>
    )}
    <optgroup label={t.people}>
      {people.map(({ id, name }) => (
        <option key={id} value={id}>
          {name}
        </option>
      ))}
    </optgroup>
    <optgroup label={t.agents}>
      {agents.map(({ id, name }) => (
        <option key={id} value={id}>
          {name}
        </option>
      ))}
    </optgroup>
  </>
)

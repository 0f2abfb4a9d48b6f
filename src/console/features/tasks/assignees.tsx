import { texts } from '../../texts.ts'
import { useAgents, useMembers } from '../agents/names.ts'

const t = texts.tasks

/** The people and agents that a task can be assigned to. */
export function useAssignees() {
  const members = useMembers()
  const { agents } = useAgents()
  const people = (members.data?.members ?? []).map(({ userId, name }) => ({ id: userId, name }))
  const bots = agents.map(({ id, name }) => ({ id, name }))
  const names = new Map([...people, ...bots].map(({ id, name }) => [id, name]))
  return {
    people,
    agents: bots,
    nameOf: (id: string) => names.get(id) ?? id,
    isAgent: (id: string) => !people.some((each) => each.id === id),
  }
}

type Assignees = Pick<ReturnType<typeof useAssignees>, 'people' | 'agents'>

/** The same as options of a select. */
export const AssigneeOptions = ({ people, agents }: Assignees) => (
  <>
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

import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { fits } from '../../components/combobox.ts'
import { Picker, type PickerProps } from '../../components/picker.tsx'
import { tasks as t } from '../../texts/tasks.ts'
import { agentQuery, useFoundAgents, useMembers } from '../agents/names.ts'

/** Maximum number of people in the list of options. */
const MAX_PEOPLE = 50

/** Names a person or an agent to whom a task is assigned, and tells them apart. */
export function useAssignee(id: string | null): { name: string; isAgent: boolean } {
  const members = useMembers()
  const person = members.data?.members.find(({ userId }) => userId === id)
  const agent = useQuery({ ...agentQuery(id ?? ''), enabled: !!id && !members.isPending && !person })
  const isReading = members.isPending || agent.isLoading
  return {
    name: person?.name ?? agent.data?.name ?? (isReading ? '…' : t.unknownAssignee),
    isAgent: agent.data !== undefined,
  }
}

/** A field that chooses a person or an agent, or a fixed value. */
export function AssigneePicker(props: PickerProps & { fixed: NonNullable<PickerProps['fixed']> }) {
  const [search, setSearch] = useState('')
  const members = useMembers()
  const { agents, isPending, hasMore } = useFoundAgents(search)
  const isId = !props.fixed.some(({ key }) => key === props.value)
  const { name } = useAssignee(isId ? props.value : null)
  const people = (members.data?.members ?? []).filter((member) => fits(member.name, search))
  return (
    <Picker
      {...props}
      name={name}
      groups={[
        {
          title: t.people,
          options: people.slice(0, MAX_PEOPLE).map(({ userId, name: label }) => ({ key: userId, label })),
        },
        { title: t.agents, options: agents.map(({ id, name: label }) => ({ key: id, label })) },
      ]}
      onSearch={setSearch}
      isPending={isPending}
      hasMore={hasMore || people.length > MAX_PEOPLE}
    />
  )
}

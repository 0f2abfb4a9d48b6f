import { useRef, useState } from 'react'
import { Ticks } from '../../components/field.tsx'
import { Picker, type PickerProps } from '../../components/picker.tsx'
import { texts } from '../../texts.ts'
import { useAgentNames, useFoundAgents } from './names.ts'

/** A field that chooses one of the agents. */
export function AgentPicker(props: PickerProps) {
  const [search, setSearch] = useState('')
  const { agents, isPending, hasMore } = useFoundAgents(search)
  const nameOf = useAgentNames([props.value])
  return (
    <Picker
      {...props}
      name={props.value && nameOf(props.value)}
      groups={[
        {
          title: texts.nav.agents,
          options: agents.map(({ id, name, role }) => ({ key: id, label: name, detail: role })),
        },
      ]}
      onSearch={setSearch}
      isPending={isPending}
      hasMore={hasMore}
    />
  )
}

type TicksProps = {
  label: string
  help?: string
  empty: string
  value: readonly string[]
  onChange: (value: string[]) => void
  /** An agent that cannot be chosen. */
  except?: string | null
}

/** A list of checkboxes of agents, with a search. */
export function AgentTicks({ except, ...props }: TicksProps) {
  const [search, setSearch] = useState('')
  const { agents, isPending, hasMore, error, refetch } = useFoundAgents(search)
  // Agents that were chosen stay in the list while the person looks at it.
  const chosen = useRef(new Set<string>())
  for (const id of props.value) chosen.current.add(id)
  const others = search ? [] : [...chosen.current].filter((id) => !agents.some((agent) => agent.id === id))
  const nameOf = useAgentNames(others)
  return (
    <Ticks
      {...props}
      options={[
        ...others.map((id) => ({ value: id, label: nameOf(id) })),
        ...agents
          .filter(({ id }) => id !== except)
          .map(({ id, name, description, role }) => ({ value: id, label: name, detail: description || role })),
      ]}
      reading={{ isPending, error, retry: () => void refetch() }}
      found={{ search, onSearch: setSearch, hasMore }}
    />
  )
}

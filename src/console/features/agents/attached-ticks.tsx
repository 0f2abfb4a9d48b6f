import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import { Ticks } from '../../components/field.tsx'
import { allPages } from '../../queries.ts'
import { texts } from '../../texts.ts'

type Row = { id: string; name: string; displayName?: string; description?: string | null; url?: string | null }

type TicksProps = {
  help?: string
  value: readonly string[]
  onChange: (value: string[]) => void
}

/** A list of checkboxes of the rows in a list that was read as a whole. */
function RowTicks({ list, ...props }: TicksProps & { label: string; empty: string; list: UseQueryResult<Row[]> }) {
  const options = (list.data ?? []).map(({ id, name, displayName, description, url }) => ({
    value: id,
    label: displayName || name,
    detail: url ?? description ?? null,
  }))
  return (
    <Ticks
      {...props}
      options={options}
      reading={{ isPending: list.isPending, error: list.error, retry: () => void list.refetch() }}
    />
  )
}

/** A list of checkboxes of all skills that the person can use. */
export function SkillTicks(props: TicksProps) {
  const list = useQuery(
    allPages('skills.list', ({ skills: { organization, core, marketplace } }): Row[] => [
      ...organization,
      ...core,
      ...marketplace,
    ]),
  )
  return <RowTicks label={texts.nav.skills} empty={texts.agents.noSkills} {...props} list={list} />
}

/** A list of checkboxes of all MCP servers that the person can use. */
export function McpTicks(props: TicksProps) {
  const list = useQuery(allPages('mcps.list', ({ mcps }): Row[] => mcps))
  return <RowTicks label={texts.nav.mcps} empty={texts.agents.noMcps} {...props} list={list} />
}

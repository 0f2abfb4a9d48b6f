import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import { Ticks } from '../../components/field.tsx'
import { allPages } from '../../queries.ts'
import { agents as t } from '../../texts/agents.ts'
import { texts } from '../../texts.ts'

type Row = { id: string; name: string; displayName?: string; description?: string | null; url?: string | null }

type TicksProps = {
  help?: string
  value: readonly string[]
  onChange: (value: string[]) => void
}

type RowProps<Page> = TicksProps & {
  label: string
  empty: string
  list: UseQueryResult<Page[]>
  rowsOf: (page: Page) => readonly Row[]
}

/** A list of checkboxes of the rows in a list that was read as a whole. */
function RowTicks<Page>({ list, rowsOf, ...props }: RowProps<Page>) {
  const options = (list.data ?? []).flatMap(rowsOf).map(({ id, name, displayName, description, url }) => ({
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
export const SkillTicks = (props: TicksProps) => (
  <RowTicks
    label={texts.nav.skills}
    empty={t.noSkills}
    list={useQuery(allPages('skills.list'))}
    rowsOf={({ skills: { organization, core, marketplace } }) => [...organization, ...core, ...marketplace]}
    {...props}
  />
)

/** A list of checkboxes of all MCP servers that the person can use. */
export const McpTicks = (props: TicksProps) => (
  <RowTicks
    label={texts.nav.mcps}
    empty={t.noMcps}
    list={useQuery(allPages('mcps.list'))}
    rowsOf={({ mcps }) => mcps}
    {...props}
  />
)

import type { LucideIcon } from 'lucide-react'
import { Plus } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'
import { More, type Paged } from './more.tsx'
import { Empty, Loaded, Page, Rows, type Watched } from './page.tsx'
import { NoMatch, SearchField, type Searching } from './search.tsx'

type Props<Read> = {
  t: { title: string; new: string; emptyTitle: string; emptyText: string }
  icon: LucideIcon
  list: Watched<{ pages: Read[] }> & Paged
  /** Renders the rows of a page of the list. */
  rowsOf: (page: Read) => ReactNode[]
  /** Renders the form of a new row. */
  form: (close: () => void) => ReactNode
  /** The search of the list, if it has one. */
  searching?: Searching
  /** A choice of the rows, and whether the person has made one. */
  filter?: { field: ReactNode; isSet: boolean }
  children?: ReactNode
}

/** A page with a list, which is read in pages, and a button that adds to it. */
export function ListPage<Read>({ t, icon, list, rowsOf, form, searching, filter, children }: Props<Read>) {
  const [isNew, setIsNew] = useState(false)
  const add = (
    <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
      {t.new}
    </Button>
  )
  return (
    <Page title={t.title} actions={add}>
      {searching && (
        <div className="mb-4 flex flex-wrap items-end gap-2">
          <SearchField list={t.title} className="w-auto min-w-40 max-w-72 flex-1" {...searching.field} />
          {filter?.field}
        </div>
      )}
      <Loaded query={list}>
        {({ pages }) => {
          const rows = pages.flatMap(rowsOf)
          if (rows.length) return <Rows>{rows}</Rows>
          if (searching?.filter.search || filter?.isSet)
            return <NoMatch icon={icon} isFiltered={filter?.isSet ?? false} />
          return (
            <Empty icon={icon} title={t.emptyTitle} text={t.emptyText}>
              {add}
            </Empty>
          )
        }}
      </Loaded>
      <More query={list} />
      {isNew && form(() => setIsNew(false))}
      {children}
    </Page>
  )
}

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
  children?: ReactNode
}

/** A page with a list, which is read in pages, and a button that adds to it. */
export function ListPage<Read>({ t, icon, list, rowsOf, form, searching, children }: Props<Read>) {
  const [isNew, setIsNew] = useState(false)
  const add = (
    <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
      {t.new}
    </Button>
  )
  return (
    <Page title={t.title} actions={add}>
      {searching && <SearchField list={t.title} className="mb-4 max-w-72" {...searching.field} />}
      <Loaded query={list}>
        {({ pages }) => {
          const rows = pages.flatMap(rowsOf)
          if (rows.length) return <Rows>{rows}</Rows>
          if (searching?.filter.search) return <NoMatch icon={icon} />
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

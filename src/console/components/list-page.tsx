import type { LucideIcon } from 'lucide-react'
import { Plus } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'
import { More, type Paged } from './more.tsx'
import { Empty, Loaded, Page, Rows, type Watched } from './page.tsx'

type Props<Read> = {
  t: { title: string; new: string; emptyTitle: string; emptyText: string }
  icon: LucideIcon
  list: Watched<{ pages: Read[] }> & Paged
  /** Renders the rows of a page of the list. */
  rowsOf: (page: Read) => ReactNode[]
  /** Renders the form of a new row. */
  form: (close: () => void) => ReactNode
  children?: ReactNode
}

/** A page with a list, which is read in pages, and a button that adds to it. */
export function ListPage<Read>({ t, icon, list, rowsOf, form, children }: Props<Read>) {
  const [isNew, setIsNew] = useState(false)
  const add = (
    <Button kind="primary" icon={Plus} onClick={() => setIsNew(true)}>
      {t.new}
    </Button>
  )
  return (
    <Page title={t.title} actions={add}>
      <Loaded query={list}>
        {({ pages }) => {
          const rows = pages.flatMap(rowsOf)
          if (rows.length) return <Rows>{rows}</Rows>
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

import { useNavigate, useSearch } from '@tanstack/react-router'
import type { LucideIcon } from 'lucide-react'
import { type Dispatch, type SetStateAction, useEffect, useRef, useState } from 'react'
import { cn } from '../lib/class-names.ts'
import { useSettled } from '../lib/settled.ts'
import { texts } from '../texts.ts'
import { Empty } from './page.tsx'

/** Maximum length of a text that the server searches (characters). */
export const MAX_SEARCH = 200

export type Searching = {
  /** The filter of the list: with the text once it has settled, empty without one. */
  filter: { search?: string }
  field: { value: string; onChange: Dispatch<SetStateAction<string>> }
}

/** The search of a list, whose text is in the URL, for a reload and the way back. */
export function useSearching(): Searching {
  const navigate = useNavigate()
  const { search: given = '' } = useSearch({ strict: false })
  const [value, onChange] = useState(given)
  const search = useSettled(value.trim())
  // Another URL, such as that of a link to the page, has its own text.
  const [seen, setSeen] = useState(given)
  if (given !== seen) {
    setSeen(given)
    if (given !== search) onChange(given)
  }
  const last = useRef(search)
  useEffect(() => {
    if (search === last.current) return
    last.current = search
    void navigate({ to: '.', search: (before) => ({ ...before, search: search || undefined }), replace: true })
  }, [search, navigate])
  return { filter: search ? { search } : {}, field: { value, onChange } }
}

type FieldProps = Searching['field'] & {
  /** The name of the list. */
  list: string
  className?: string
}

/** The field of {@link useSearching}. */
export const SearchField = ({ value, onChange, list, className }: FieldProps) => (
  <input
    type="search"
    aria-label={texts.searchIn(list)}
    placeholder={texts.search}
    maxLength={MAX_SEARCH}
    className={cn('field', className)}
    value={value}
    onChange={({ target }) => onChange(target.value)}
  />
)

/** The text of a list in which a search finds nothing. */
export const NoMatch = ({ icon }: { icon: LucideIcon }) => (
  <div role="status">
    <Empty icon={icon} title={texts.noMatch} text={texts.noMatchText} />
  </div>
)

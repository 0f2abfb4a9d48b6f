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

/**
 * A text that a person types and the URL has, for a reload and the way back: the value of its field, and the text once
 * it has settled. A field with the value of the URL, which follows later, would move the cursor and undo half a date.
 */
export function useTyped(name: 'search' | 'action' | 'since' | 'until'): { text: string; field: Searching['field'] } {
  const navigate = useNavigate()
  const { [name]: given = '' } = useSearch({ strict: false })
  const [value, onChange] = useState(given)
  const text = useSettled(value.trim())
  const last = useRef(given)
  /** The texts that the URL will have, because the person has typed them. Meanwhile the person types on. */
  const coming = useRef<string[]>([])
  useEffect(() => {
    const at = coming.current.indexOf(given)
    coming.current = at < 0 ? [] : coming.current.slice(at + 1)
    if (at >= 0) return
    // Another URL, such as that of a link to the page, has its own text.
    last.current = given
    onChange(given)
  }, [given])
  useEffect(() => {
    if (text === last.current) return
    last.current = text
    coming.current.push(text)
    void navigate({ to: '.', search: (before) => ({ ...before, [name]: text || undefined }), replace: true })
  }, [text, name, navigate])
  return { text, field: { value, onChange } }
}

/** The search of a list. */
export function useSearching(): Searching {
  const { text: search, field } = useTyped('search')
  return { filter: search ? { search } : {}, field }
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

/** The text of a list in which a search, or a choice of rows (`isFiltered`), finds nothing. */
export const NoMatch = ({ icon, isFiltered = false }: { icon: LucideIcon; isFiltered?: boolean }) => (
  <div role="status">
    <Empty icon={icon} title={texts.noMatch} text={isFiltered ? texts.noMatchFiltered : texts.noMatchText} />
  </div>
)

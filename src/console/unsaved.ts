import { useEffect } from 'react'

const forms = new Set<object>()

/** Remembers that a form has changes that are not saved, as long as it has. */
export function useUnsaved(isChanged: boolean): void {
  useEffect(() => {
    if (!isChanged) return
    const form = {}
    forms.add(form)
    return () => void forms.delete(form)
  }, [isChanged])
}

/** Whether a form of the page has changes that are not saved. */
export const hasUnsaved = (): boolean => forms.size > 0

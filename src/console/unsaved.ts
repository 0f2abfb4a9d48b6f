import { useEffect } from 'react'

const forms = new Set<object>()

/** Remembers whether something that is no form has input that the server does not have. */
export const keepUnsaved = (thing: object, isUnsaved: boolean): void =>
  void (isUnsaved ? forms.add(thing) : forms.delete(thing))

/** Remembers that a form has changes that are not saved, as long as it has. */
export function useUnsaved(isChanged: boolean): void {
  useEffect(() => {
    if (!isChanged) return
    const form = {}
    forms.add(form)
    return () => void forms.delete(form)
  }, [isChanged])
}

/** Returns whether a form of the page has changes that are not saved. */
export const hasUnsaved = (): boolean => forms.size > 0

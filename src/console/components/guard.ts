import { useBlocker } from '@tanstack/react-router'
import { useEffect, useSyncExternalStore } from 'react'
import { texts } from '../texts.ts'
import { useUnsaved } from '../unsaved.ts'

/** A form with changes that are not saved. `staysOnPage`: links that change only the query of the address keep them. */
type Guarded = { staysOnPage: boolean }

const guarded = new Set<Guarded>()
const listeners = new Set<() => void>()
const notify = () => {
  for (const listener of listeners) listener()
}
const subscribe = (listener: () => void) => {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}
const hasGuarded = () => guarded.size > 0

function useGuarded(isChanged: boolean, staysOnPage: boolean): void {
  useUnsaved(isChanged)
  useEffect(() => {
    if (!isChanged) return
    const form = { staysOnPage }
    guarded.add(form)
    notify()
    return () => {
      guarded.delete(form)
      notify()
    }
  }, [isChanged, staysOnPage])
}

/** Asks before unsaved changes are lost. */
export const useGuard = (isChanged: boolean): void => useGuarded(isChanged, false)

/**
 * Asks before a link, a reload or the way back leaves a page, or closes a dialog, with unsaved changes. Links that
 * change only the query of the address pass: tabs of a page keep the changes, and a dialog that is closed asks by
 * itself.
 */
export const usePageGuard = (isChanged: boolean): void => useGuarded(isChanged, true)

/** Asks for all guarded forms of a page. Each of them would ask by itself otherwise. */
export function useGuardOfAll(): void {
  useBlocker({
    disabled: !useSyncExternalStore(subscribe, hasGuarded),
    shouldBlockFn({ current, next, action }) {
      const isSamePage = current.pathname === next.pathname && (action === 'PUSH' || action === 'REPLACE')
      const isLost = [...guarded].some(({ staysOnPage }) => !(isSamePage && staysOnPage))
      return isLost && !confirm(texts.leave)
    },
    enableBeforeUnload: hasGuarded,
  })
}

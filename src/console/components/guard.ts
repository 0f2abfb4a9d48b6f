import { useBlocker } from '@tanstack/react-router'
import { texts } from '../texts.ts'
import { useUnsaved } from '../unsaved.ts'

/** Asks before unsaved changes are lost. */
export function useGuard(isChanged: boolean): void {
  useUnsaved(isChanged)
  useBlocker({ shouldBlockFn: () => isChanged && !confirm(texts.leave), enableBeforeUnload: () => isChanged })
}

/**
 * Asks before a link, a reload or the way back leaves a page, or closes a dialog, with unsaved changes. Links that
 * change only the query of the address pass: tabs of a page keep the changes, and a dialog that is closed asks by
 * itself.
 */
export function usePageGuard(isChanged: boolean): void {
  useUnsaved(isChanged)
  useBlocker({
    shouldBlockFn: ({ current, next, action }) => {
      const isSamePage = current.pathname === next.pathname && (action === 'PUSH' || action === 'REPLACE')
      return isChanged && !isSamePage && !confirm(texts.leave)
    },
    enableBeforeUnload: () => isChanged,
  })
}

import { type RefObject, useLayoutEffect } from 'react'

/** Moves the focus to the composer of the page, or else to its content, when an element disappears that has it. */
export function useKeptFocus(box: RefObject<HTMLElement | null>): void {
  useLayoutEffect(() => {
    const element = box.current
    return () => {
      if (!element?.contains(document.activeElement)) return
      const next = document.querySelector<HTMLElement>('main [data-composer]') ?? document.getElementById('main')
      next?.focus({ preventScroll: true })
    }
  }, [box])
}

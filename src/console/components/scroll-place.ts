import { type RouterHistory, useRouter } from '@tanstack/react-router'
import { type RefObject, useLayoutEffect, useState } from 'react'

/** The places of scrolling boxes (px), by the entries of the browser's history in which they are, or by names. */
const places = new Map<string, number>()

/** The acts by which a person scrolls. */
const ACTS = ['wheel', 'touchstart', 'pointerdown', 'keydown'] as const

const entryAt = (index: number) => `entry ${index} `

/** Forgets the places of an entry that a link replaces by another page. */
export const forgetReplaced = (history: RouterHistory): void =>
  void history.subscribe(({ location, action }) => {
    if (action.type !== 'PUSH') return
    const entry = entryAt(location.state.__TSR_index)
    for (const key of places.keys()) if (key.startsWith(entry)) places.delete(key)
  })

/**
 * Keeps the place of a scrolling box, so that the way back to a list leads to the row that the person has opened. A box
 * with a name, which several pages have, is at its place on every page.
 */
export function useScrollPlace(box: RefObject<HTMLElement | null>, name?: string): void {
  const { history } = useRouter()
  const { pathname, state } = history.location
  // A search replaces the address, and stays in the entry.
  const [key] = useState(name ?? `${entryAt(state.__TSR_index)}${pathname}`)
  useLayoutEffect(() => {
    const { current } = box
    if (!current) return
    let wanted = places.get(key)
    const restore = () => {
      if (wanted === undefined) return
      current.scrollTop = wanted
      // Rows may come later.
      if (Math.abs(current.scrollTop - wanted) <= 1) wanted = undefined
    }
    const giveUp = () => {
      wanted = undefined
    }
    const keep = () => {
      if (wanted === undefined) places.set(key, current.scrollTop)
    }
    restore()
    const observer = new ResizeObserver(restore)
    for (const child of current.children) observer.observe(child)
    current.addEventListener('scroll', keep, { passive: true })
    for (const act of ACTS) current.addEventListener(act, giveUp, { passive: true })
    return () => {
      observer.disconnect()
      current.removeEventListener('scroll', keep)
      for (const act of ACTS) current.removeEventListener(act, giveUp)
    }
  }, [key, box])
}

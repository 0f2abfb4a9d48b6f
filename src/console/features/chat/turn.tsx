import { type ReactNode, useEffect, useRef, useState } from 'react'

/** Whether the browser itself keeps the place of a reader when turns above change their heights. Safari does not. */
export const KEEPS_PLACE = CSS.supports('overflow-anchor', 'auto')

/** Called when an element comes close to the visible part of its scrolling box. One observer serves a box. */
const callbacks = new WeakMap<Element, () => void>()
const observers = new WeakMap<Element, IntersectionObserver>()

function whenNear(element: Element, callback: () => void): () => void {
  const root = element.closest('[role=log]')
  if (!root) return () => {}
  let observer = observers.get(root)
  if (!observer) {
    const options = { root, rootMargin: '100% 0px' }
    observer = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) callbacks.get(target)?.()
    }, options)
    observers.set(root, observer)
  }
  callbacks.set(element, callback)
  observer.observe(element)
  return () => observer.unobserve(element)
}

/** The interval between two groups of turns, and the number of turns of a group. */
const PAUSE = 50
const GROUP = 10

/** Called in turn, the latest first. */
const waiting = new Set<() => void>()

function next(): void {
  for (const each of [...waiting].slice(-GROUP)) {
    waiting.delete(each)
    each()
  }
  if (waiting.size) setTimeout(next, PAUSE)
}

/** Calls a function when the browser has had time for others. */
function soon(callback: () => void): () => void {
  if (!waiting.size) setTimeout(next, PAUSE)
  waiting.add(callback)
  return () => waiting.delete(callback)
}

type Props = { text: string; isFar: boolean; children: ReactNode }

/**
 * A turn of a chat. Far from the end it is its plain text until it comes close to the visible part, because a chat may
 * have thousands of turns. The search of the browser finds that text.
 */
export function Turn({ text, isFar, children }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const [isWhole, setIsWhole] = useState(!isFar)
  useEffect(() => {
    if (isWhole || !box.current) return
    const show = () => setIsWhole(true)
    const stops = [whenNear(box.current, show), ...(KEEPS_PLACE ? [] : [soon(show)])]
    return () => {
      for (const stop of stops) stop()
    }
  }, [isWhole])
  return (
    // The first frame of an element with this class is empty.
    <div ref={box} className={isFar ? 'turn' : undefined}>
      {isWhole ? children : <p className="whitespace-pre-wrap">{text}</p>}
    </div>
  )
}

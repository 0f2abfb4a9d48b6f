import { type ReactNode, useEffect, useRef, useState } from 'react'

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

type Props = { text: string; isFar: boolean; children: ReactNode }

/**
 * A turn of a chat. Far from the end it is its plain text until it comes close to the visible part, because a chat may
 * have thousands of turns. The search of the browser finds that text.
 */
export function Turn({ text, isFar, children }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const [isWhole, setIsWhole] = useState(!isFar)
  useEffect(() => {
    if (!isWhole && box.current) return whenNear(box.current, () => setIsWhole(true))
  }, [isWhole])
  return (
    // The first frame of an element with this class is empty.
    <div ref={box} className={isFar ? 'turn' : undefined}>
      {isWhole ? children : <p className="whitespace-pre-wrap">{text}</p>}
    </div>
  )
}

import { X } from 'lucide-react'
import { useEffect, useRef, useSyncExternalStore } from 'react'
import { cn } from '../lib/class-names.ts'
import { texts } from '../texts.ts'
import { IconButton } from './button.tsx'

type Toast = { id: number; text: string; kind: 'good' | 'bad' }

let toasts: readonly Toast[] = []
let last = 0
const listeners = new Set<() => void>()
const set = (next: readonly Toast[]) => {
  toasts = next
  for (const listener of listeners) listener()
}
const dismiss = (id: number) => set(toasts.filter((toast) => toast.id !== id))

/** Returns whether the person reads a message, or cannot see it. */
const isHeld = () => document.hidden || document.querySelector('#toasts:is(:hover, :focus-within)') !== null

/**
 * Shows a message in a corner for a while, each text once. Failures stay longer. Its time begins anew after a pointer
 * or the focus was on a message, or the tab was hidden.
 */
export function toast(text: string, kind: Toast['kind'] = 'good'): void {
  last += 1
  const id = last
  set([...toasts.filter((each) => each.text !== text).slice(-3), { id, text, kind }])
  const seconds = kind === 'bad' ? 12 : 4
  let left = seconds
  const timer = setInterval(() => {
    left = isHeld() ? seconds : left - 1
    if (left === 0) dismiss(id)
    if (!toasts.some((each) => each.id === id)) clearInterval(timer)
  }, 1_000)
}

export function Toasts() {
  const current = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => toasts,
  )
  const box = useRef<HTMLDivElement>(null)
  // A dialog is in the browser's top layer. Entering that layer last puts the messages above it.
  // biome-ignore lint/correctness/useExhaustiveDependencies: for each message
  useEffect(() => {
    box.current?.hidePopover()
    box.current?.showPopover()
  }, [current])
  return (
    <div
      ref={box}
      id="toasts"
      popover="manual"
      className="pointer-events-none fixed inset-auto top-3 right-4 left-4 m-0 flex w-auto flex-col items-center gap-2 overflow-visible border-0 bg-transparent p-0 text-ink"
    >
      <div aria-live="polite" className="contents">
        {current.map(({ id, text, kind }) => (
          <div
            key={id}
            role={kind === 'bad' ? 'alert' : undefined}
            className={cn(
              'pointer-events-auto flex max-w-md animate-appear items-start gap-2 rounded-lg border bg-raised py-1.5 pr-1 pl-3 shadow-lg',
              kind === 'bad' ? 'border-danger text-danger' : 'border-line',
            )}
          >
            <span className="min-w-0 whitespace-pre-line py-1.5" dir="auto">
              {text}
            </span>
            <IconButton label={texts.close} icon={X} onClick={() => dismiss(id)} />
          </div>
        ))}
      </div>
    </div>
  )
}

import { ArrowDown } from 'lucide-react'
import { type ReactNode, useCallback, useLayoutEffect, useRef, useState } from 'react'
import { Button } from '../../components/button.tsx'
import { texts } from '../../texts.ts'
import { KEEPS_PLACE } from './turn.tsx'

const t = texts.chat

/** The keys that scroll up, and those that scroll down. */
const UP: ReadonlySet<string> = new Set(['ArrowUp', 'PageUp', 'Home'])
const DOWN: ReadonlySet<string> = new Set(['ArrowDown', 'PageDown', 'End', ' '])

/** The distance from the end at which a person has reached it (px). */
const NEAR = 80

const sizeOf = ({ clientWidth, clientHeight }: Element) => `${clientWidth} ${clientHeight}`

/** Returns the first child of a column that ends below a line. */
function firstBelow({ children }: Element, line: number): Element | undefined {
  let [from, to] = [0, children.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if ((children[middle]?.getBoundingClientRect().bottom ?? 0) > line) to = middle
    else from = middle + 1
  }
  return children[from]
}

/**
 * Stays at the end while the person is there, whatever grows or shrinks: the content, the composer or the window. Goes
 * there with each message that the person sends (`sent`).
 */
export function Scroller({ sent, children }: { sent: string | undefined; children: ReactNode }) {
  const box = useRef<HTMLDivElement>(null)
  const content = useRef<HTMLDivElement>(null)
  const [isAtEnd, setIsAtEnd] = useState(true)
  const follow = useRef(true)
  const observed = useRef('')
  const lastTop = useRef(0)
  /** Whether the person has left the end by a key or a wheel, and neither reached it nor begun to return. */
  const isReading = useRef(false)
  /** The first visible turn, and the distance between its top and that of the content's scrolled part (px). */
  const anchor = useRef<{ turn: Element; top: number } | null>(null)

  const leaveOrFollow = useCallback((isFollowing: boolean) => {
    follow.current = isFollowing
    if (isFollowing) isReading.current = false
    setIsAtEnd(isFollowing)
  }, [])

  const toEnd = useCallback(() => {
    if (!box.current) return
    leaveOrFollow(true)
    box.current.scrollTop = box.current.scrollHeight
    lastTop.current = box.current.scrollTop
  }, [leaveOrFollow])

  /** Remembers the turn that must not move when turns above it change their heights. */
  const hold = useCallback(() => {
    if (KEEPS_PLACE || !box.current || !content.current) return
    const turn = firstBelow(content.current, box.current.getBoundingClientRect().top)
    anchor.current = turn ? { turn, top: turn.getBoundingClientRect().top + box.current.scrollTop } : null
  }, [])

  const keepPlace = useCallback(() => {
    if (KEEPS_PLACE || !box.current || !anchor.current) return
    const { turn, top } = anchor.current
    const moved = turn.getBoundingClientRect().top + box.current.scrollTop - top
    if (turn.isConnected && Math.abs(moved) >= 1) box.current.scrollTop += moved
  }, [])

  // The least step up leaves the end. A growing answer would undo it.
  const leave = () => {
    if (!box.current || box.current.scrollHeight <= box.current.clientHeight) return
    isReading.current = true
    leaveOrFollow(false)
  }

  const turnBack = () => {
    isReading.current = false
  }

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => {
      if (!box.current) return
      observed.current = sizeOf(box.current)
      if (follow.current) toEnd()
      else keepPlace()
      hold()
    })
    for (const { current } of [box, content]) if (current) observer.observe(current)
    return () => observer.disconnect()
  }, [toEnd, keepPlace, hold])

  useLayoutEffect(() => {
    if (sent) toEnd()
  }, [sent, toEnd])

  return (
    <div className="relative min-h-0 flex-1">
      <div
        ref={box}
        className="h-full overflow-y-auto"
        role="log"
        // The runs announce their ends themselves.
        aria-live="off"
        aria-label={t.conversation}
        tabIndex={0}
        onScroll={({ currentTarget }) => {
          const { scrollTop, scrollHeight, clientHeight } = currentTarget
          const moved = scrollTop - lastTop.current
          lastTop.current = scrollTop
          hold()
          // A browser that has turned or resized the window scrolls before the observer can.
          if (sizeOf(currentTarget) !== observed.current) return
          const left = scrollHeight - scrollTop - clientHeight
          const isNear = left < NEAR
          // A step to the end by this component, whose event may come after the key of a person, has moved nothing since.
          const isReached = left < 2 && moved > 0
          // On the way up a person is near at first, too, and the browser scrolls down when lines appear above. An answer
          // that grows between a step down and its event is far from its end, but nobody has left that.
          if (isNear ? isReached || !isReading.current : moved < 0) leaveOrFollow(isNear)
        }}
        onWheel={({ deltaY }) => (deltaY < 0 ? leave() : turnBack())}
        onKeyDown={({ key, target }) => {
          const isTyping = target instanceof Element && target.matches('input, textarea')
          if (isTyping) return
          if (UP.has(key)) leave()
          if (DOWN.has(key)) turnBack()
        }}
      >
        <div ref={content} className="mx-auto flex max-w-3xl flex-col gap-3 px-4 py-6">
          {children}
        </div>
      </div>
      {!isAtEnd && (
        <Button icon={ArrowDown} small onClick={toEnd} className="absolute bottom-3 left-1/2 -translate-x-1/2 shadow">
          {t.toEnd}
        </Button>
      )}
    </div>
  )
}

import { ArrowDown } from 'lucide-react'
import { type ReactNode, useLayoutEffect, useRef, useState } from 'react'
import { Button } from '../../components/button.tsx'
import { texts } from '../../texts.ts'

const t = texts.chat

const sizeOf = ({ clientWidth, clientHeight }: Element) => `${clientWidth} ${clientHeight}`

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

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => {
      if (!box.current) return
      observed.current = sizeOf(box.current)
      if (follow.current) box.current.scrollTop = box.current.scrollHeight
    })
    for (const { current } of [box, content]) if (current) observer.observe(current)
    return () => observer.disconnect()
  }, [])

  useLayoutEffect(() => {
    if (!sent || !box.current) return
    follow.current = true
    box.current.scrollTop = box.current.scrollHeight
  }, [sent])

  const toEnd = () => box.current?.scrollTo({ top: box.current.scrollHeight })
  return (
    <div className="relative min-h-0 flex-1">
      <div
        ref={box}
        className="h-full overflow-y-auto"
        role="log"
        aria-label={t.conversation}
        tabIndex={0}
        onScroll={({ currentTarget }) => {
          // A browser that has turned or resized the window scrolls before the observer can.
          if (sizeOf(currentTarget) !== observed.current) return
          const { scrollTop, scrollHeight, clientHeight } = currentTarget
          const near = scrollHeight - scrollTop - clientHeight < 80
          follow.current = near
          setIsAtEnd(near)
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

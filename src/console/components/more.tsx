import { type ReactNode, useEffect, useRef, useState } from 'react'
import { texts } from '../texts.ts'
import { Button } from './button.tsx'

export type Paged = { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown }

/** Number of rows of a whole list that are shown at once: thousands would block the page. */
const PART = 100

/** Returns the first rows of a list that was read as a whole, and a button that shows more of them. */
export function useParts<Row>(rows: readonly Row[]): [readonly Row[], ReactNode] {
  const [count, setCount] = useState(PART)
  const button = count < rows.length && (
    <div className="flex justify-center py-3">
      <Button kind="ghost" small onClick={() => setCount(count + PART)}>
        {texts.more}
      </Button>
    </div>
  )
  return [rows.slice(0, count), button]
}

/** Loads the next page when the end of a list comes into view; keyboards and screen readers get a button. */
export function More({ query: { hasNextPage, isFetchingNextPage, fetchNextPage } }: { query: Paged }) {
  const end = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const element = end.current
    if (!element || !hasNextPage || isFetchingNextPage) return
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && fetchNextPage(), {
      rootMargin: '400px',
    })
    observer.observe(element)
    return () => observer.disconnect()
  }, [hasNextPage, isFetchingNextPage, fetchNextPage])
  if (!hasNextPage) return null
  return (
    <div ref={end} className="flex justify-center py-3">
      <Button kind="ghost" small busy={isFetchingNextPage} onClick={() => fetchNextPage()}>
        {isFetchingNextPage ? texts.loading : texts.more}
      </Button>
    </div>
  )
}

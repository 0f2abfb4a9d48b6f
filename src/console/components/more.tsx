import { useEffect, useRef } from 'react'
import { texts } from '../texts.ts'
import { Button } from './button.tsx'

export type Paged = { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown }

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

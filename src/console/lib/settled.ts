import { useEffect, useState } from 'react'

/** Time without a further letter after which a text is searched (ms). */
const TYPING = 200

/** The newest value that has not changed for a moment. */
export function useSettled(value: string): string {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), TYPING)
    return () => clearTimeout(timer)
  }, [value])
  return settled
}

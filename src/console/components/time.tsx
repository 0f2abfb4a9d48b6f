import { useEffect, useState } from 'react'
import { ago, moment } from '../lib/format.ts'

/** Shows the age of a moment, kept up to date; the exact time appears on hover. */
export function Ago({ at }: { at: string }) {
  const [now, setNow] = useState(Date.now)
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 30_000)
    return () => clearInterval(timer)
  }, [])
  return (
    <time dateTime={at} title={moment(at)} className="whitespace-nowrap">
      {ago(at, now)}
    </time>
  )
}

import { useEffect, useState } from 'react'
import { ago, moment } from '../lib/format.ts'

/** Shows the age of a moment, kept up to date; the exact time appears on hover. */
export function Ago({ at }: { at: string }) {
  const [, tick] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => tick((before) => before + 1), 30_000)
    return () => clearInterval(timer)
  }, [])
  return (
    <time dateTime={at} title={moment(at)} className="whitespace-nowrap">
      {ago(at)}
    </time>
  )
}

import { Link, useParams } from '@tanstack/react-router'
import { useVirtualizer } from '@tanstack/react-virtual'
import { Link2 } from 'lucide-react'
import { useEffect, useRef } from 'react'
import { cn } from '../../lib/class-names.ts'
import { runs as t } from '../../texts/runs.ts'
import type { Numbered } from './follow-run.ts'

/** Maximum length of the data of one event (characters), because an answer may have a megabyte. */
const MAX_DATA = 4_000

const clock = (at: Date | string) => new Date(at).toISOString().slice(11, 23)

/** The raw events of a run. Each has a URL. */
export function Events({ events, at }: { events: readonly Numbered[]; at: number | null }) {
  const { runId } = useParams({ from: '/runs/$runId' })
  const box = useRef<HTMLDivElement>(null)
  const virtual = useVirtualizer({
    count: events.length,
    getScrollElement: () => box.current,
    estimateSize: () => 34,
    overscan: 20,
  })
  const index = at === null ? -1 : events.findIndex(({ seq }) => seq === at)
  useEffect(() => {
    if (index >= 0) virtual.scrollToIndex(index, { align: 'center' })
  }, [index, virtual])
  if (!events.length) return <p className="text-soft">{t.noSteps}</p>
  return (
    <div
      ref={box}
      tabIndex={0}
      role="region"
      aria-label={t.tabs.events}
      className="h-[65vh] overflow-auto rounded-xl border border-line"
    >
      <ol style={{ height: virtual.getTotalSize(), position: 'relative' }} className="font-mono text-xs">
        {virtual.getVirtualItems().map(({ index: row, start, key }) => {
          const event = events[row]
          if (!event) return null
          const data = JSON.stringify(event.data)
          return (
            <li
              key={key}
              ref={virtual.measureElement}
              data-index={row}
              className={cn(
                'absolute inset-x-0 flex gap-3 border-line border-b px-3 py-1.5',
                event.seq === at && 'bg-tint',
              )}
              style={{ transform: `translateY(${start}px)` }}
            >
              <Link
                to="/runs/$runId"
                params={{ runId }}
                search={{ tab: 'events', seq: String(event.seq) }}
                className="flex w-14 shrink-0 items-center gap-1 self-start text-soft hover:text-accent"
                aria-label={`${t.linkTo} ${event.seq}`}
              >
                <Link2 size={12} aria-hidden />
                {event.seq}
              </Link>
              <span className="hidden w-24 shrink-0 text-soft sm:block">{clock(event.at)}</span>
              <span className="w-16 shrink-0 font-semibold">{event.event}</span>
              <span className="min-w-0 flex-1 break-all" dir="ltr">
                {data.length > MAX_DATA ? `${data.slice(0, MAX_DATA)}…` : data}
              </span>
            </li>
          )
        })}
      </ol>
    </div>
  )
}

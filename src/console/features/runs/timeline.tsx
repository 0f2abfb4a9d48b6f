import { Link } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import type { Output } from '../../api.ts'
import { cn } from '../../lib/class-names.ts'
import { now } from '../../lib/clock.ts'
import { duration } from '../../lib/format.ts'
import { runs as t } from '../../texts/runs.ts'
import { texts } from '../../texts.ts'
import { useAgentNames } from '../agents/names.ts'
import type { Numbered } from './follow-run.ts'
import type { Execution } from './run.tsx'
import { inRows, type Span, spansOf, time } from './spans.ts'

type Node = Output<'executions.tree'>['tree']

const ROW = 1.75

const flat = (node: Node): Node[] => [node, ...node.children.flatMap(flat)]

const COLOURS = {
  queue: 'bg-hover',
  model: 'bg-accent text-on-accent',
  tool: 'bg-good text-canvas',
  wait: 'bg-warn text-canvas',
  failed: 'bg-danger text-canvas',
}

type Props = { run: Execution; tree: Node | null; events: readonly Numbered[] }

/** A lane for each run of the tree, on one axis of time. The run itself shows its steps and tools. */
export function Timeline({ run, tree, events }: Props) {
  const [present, setPresent] = useState(now)
  const isOn = !run.completedAt
  useEffect(() => {
    if (!isOn) return
    const timer = setInterval(() => setPresent(now()), 500)
    return () => clearInterval(timer)
  }, [isOn])

  const lanes: readonly Execution[] = tree ? flat(tree) : [run]
  const nameOf = useAgentNames(lanes.map(({ agentId }) => agentId))
  const start = Math.min(...lanes.map(({ createdAt }) => time(createdAt)))
  const end = Math.max(...lanes.map(({ completedAt }) => (completedAt ? time(completedAt) : present)), start + 1)
  const percent = (at: number) => ((Math.min(Math.max(at, start), end) - start) / (end - start)) * 100
  const spans = spansOf(events, run, run.completedAt ? time(run.completedAt) : present)
  return (
    <div className="overflow-x-auto rounded-xl border border-line">
      <div className="min-w-[40rem]">
        <div className="flex justify-between border-line border-b bg-panel py-1.5 pr-3 pl-32 text-soft sm:pl-48 text-xs tabular-nums">
          <span>0</span>
          <span>{duration((end - start) / 2)}</span>
          <span>{duration(end - start)}</span>
        </div>
        {lanes.map((lane) => {
          const isSelf = lane.id === run.id
          const from = time(lane.startedAt ?? lane.createdAt)
          const to = lane.completedAt ? time(lane.completedAt) : present
          const bars = inRows<Span>(
            isSelf ? spans : [{ key: lane.id, label: texts.runStates[lane.status], kind: 'model', from, to, seq: 0 }],
          )
          const rows = Math.max(1, ...bars.map(({ row }) => row + 1))
          return (
            <div key={lane.id} className={cn('flex border-line border-b last:border-b-0', isSelf && 'bg-panel')}>
              <div
                className="w-32 shrink-0 truncate border-line border-r px-3 py-2 sm:w-48"
                style={{ paddingLeft: `${0.75 + lane.depth}rem` }}
              >
                <Link to="/runs/$runId" params={{ runId: lane.id }} aria-current={isSelf ? 'true' : undefined}>
                  <bdi className={cn(isSelf && 'font-medium')}>{nameOf(lane.agentId)}</bdi>
                </Link>
              </div>
              <ul
                className="relative min-h-10 flex-1"
                style={{ height: `${rows * ROW + 0.75}rem` }}
                aria-label={t.lane(nameOf(lane.agentId))}
              >
                <Bar kind="queue" row={0} left={percent(time(lane.createdAt))} right={percent(from)} label={t.queue} />
                {bars.map((bar) => (
                  <Bar
                    key={bar.key}
                    kind={bar.kind}
                    row={bar.row}
                    left={percent(bar.from)}
                    right={percent(bar.to)}
                    label={`${bar.label} · ${duration(bar.to - bar.from)}`}
                    {...(isSelf && { link: { runId: run.id, seq: bar.seq } })}
                  />
                ))}
              </ul>
            </div>
          )
        })}
      </div>
    </div>
  )
}

type BarProps = {
  kind: Span['kind']
  row: number
  left: number
  right: number
  label: string
  link?: { runId: string; seq: number }
}

function Bar({ kind, row, left, right, label, link }: BarProps) {
  if (right <= left && kind === 'queue') return null
  const text = (
    <span
      className={cn('mark block h-6 min-w-1 overflow-hidden truncate rounded px-1.5 text-xs leading-6', COLOURS[kind])}
      title={label}
    >
      {label}
    </span>
  )
  return (
    <li
      className="absolute"
      style={{
        top: `${0.5 + row * ROW}rem`,
        left: `min(${left}%, calc(100% - 0.25rem))`,
        width: `max(0.25rem, ${right - left}%)`,
      }}
    >
      {link ? (
        <Link to="/runs/$runId" params={{ runId: link.runId }} search={{ tab: 'events', seq: String(link.seq) }}>
          {text}
        </Link>
      ) : (
        text
      )}
    </li>
  )
}

import { runs as t } from '../../texts/runs.ts'
import { texts } from '../../texts.ts'
import type { Numbered } from './follow-run.ts'
import type { Execution } from './run.tsx'

/** A part of a run on the axis of time: `from` and `to` in milliseconds, and the event that it belongs to. */
export type Span = {
  key: string
  label: string
  kind: 'queue' | 'model' | 'tool' | 'wait' | 'failed'
  from: number
  to: number
  seq: number
}

/** Returns a time of the API in milliseconds. */
export const time = (at: Date | string) => new Date(at).getTime()

/** Returns the course of a run over time, from its events: the model's steps, and the tools between them. */
export function spansOf(events: readonly Numbered[], run: Execution, now: number): Span[] {
  const spans: Span[] = []
  const open = new Map<string, Span>()
  let since = time(run.startedAt ?? run.createdAt)

  function add({ seq, at, event, data }: Numbered): void {
    const when = time(at)
    // The step that did not complete.
    if (event === 'error' && !open.size) {
      spans.push({ key: `e${seq}`, label: texts.runStates[data.status], kind: 'failed', from: since, to: when, seq })
    }
    if (event === 'result' || event === 'error') {
      for (const span of open.values()) span.to = when
      open.clear()
    }
    if (event !== 'message') return
    if (data.messageType === 'assistant') {
      spans.push({ key: `m${seq}`, label: t.step(data.step), kind: 'model', from: since, to: when, seq })
      since = when
      for (const { id, name } of data.content.filter((block) => block.type === 'tool_use')) {
        const span: Span = { key: id, label: name, kind: 'tool', from: when, to: now, seq }
        open.set(id, span)
        spans.push(span)
      }
    }
    const span = 'toolUseId' in data && open.get(data.toolUseId)
    if (span && data.messageType === 'approval') span.kind = 'wait'
    if (data.messageType !== 'tool_result') return
    if (span) span.to = when
    open.delete(data.toolUseId)
    since = when
  }

  for (const event of events) add(event)
  if (!run.completedAt && run.status === 'running' && !open.size) {
    spans.push({ key: 'now', label: t.model_, kind: 'model', from: since, to: now, seq: events.at(-1)?.seq ?? 0 })
  }
  return spans
}

/** Puts bars that overlap below each other: each into the first row that is free at its time. */
export function inRows<Bar extends { from: number; to: number }>(bars: readonly Bar[]): (Bar & { row: number })[] {
  const ends: number[] = []
  return bars.map((bar) => {
    const free = ends.findIndex((end) => end <= bar.from)
    const row = free < 0 ? ends.length : free
    ends[row] = bar.to
    return { ...bar, row }
  })
}

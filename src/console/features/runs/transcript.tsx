import { useMemo } from 'react'
import type { ChatEvent } from '../../../wire.ts'
import { Markdown } from '../../components/markdown.tsx'
import { runs as t } from '../../texts/runs.ts'
import { apply, type Live } from '../chat/live.ts'
import { RunView } from '../chat/run-view.tsx'
import type { Numbered } from './follow-run.ts'
import type { Execution } from './run.tsx'

/** The messages of a run, step by step. */
export function Transcript({ run, events }: { run: Execution; events: readonly Numbered[] }) {
  const live = useMemo(
    () =>
      events.reduce<Live>(
        (before, event) => apply(before, { ...event, id: '', executionId: run.id } as unknown as ChatEvent),
        new Map(),
      ),
    [events, run.id],
  )
  const liveRun = live.get(run.id)
  // The page above shows the failure.
  const isFailed = liveRun?.status === 'failed'
  return (
    <div className="max-w-3xl">
      <h2 className="mb-1 text-soft text-xs">{t.question}</h2>
      <div className="mb-5 rounded-xl bg-tint px-4 py-3">
        <Markdown text={run.message} />
      </div>
      {liveRun ? (
        <RunView run={isFailed ? { ...liveRun, error: null } : liveRun} />
      ) : (
        <p className="text-soft">{t.noSteps}</p>
      )}
    </div>
  )
}

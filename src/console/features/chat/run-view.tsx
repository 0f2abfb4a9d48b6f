import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { CircleAlert, LoaderCircle, RotateCcw } from 'lucide-react'
import { type RefObject, useEffect, useRef } from 'react'
import { Button } from '../../components/button.tsx'
import { Markdown } from '../../components/markdown.tsx'
import { announce } from '../../lib/announce.ts'
import { query } from '../../queries.ts'
import { texts } from '../../texts.ts'
import { Decision } from '../approvals/decision.tsx'
import { ConnectButton } from '../mcps/connect.tsx'
import { Failure } from '../runs/failure.tsx'
import { type LiveRun, signInsOf, waitingIn } from './live.ts'
import { Reasoning, Summary, ToolCall } from './tool-call.tsx'

/** The live output of a run: reasoning, text, tools, approvals, warnings, and its end. */
export function RunView({ run, onAgain }: { run: LiveRun; onAgain?: (() => void) | undefined }) {
  const running = run.status === 'running'
  const waiting = waitingIn(run)
  const last = run.steps.at(-1)
  const box = useRef<HTMLDivElement>(null)
  useAnnounced(run, box)
  const isSilent = running && !waiting.length && (!last || (!last.text && !last.thinking && !last.tools.length))
  return (
    <div ref={box}>
      {run.summary && <Summary text={run.summary} />}
      {run.steps.map((step) => (
        <div key={step.step}>
          {step.thinking && <Reasoning text={step.thinking} active={running && step === last && !step.text} />}
          {step.text && <Markdown text={step.text} />}
          {step.tools.map((tool) => (
            <ToolCall key={tool.id} call={tool} waits={waiting.includes(tool)} running={running} />
          ))}
        </div>
      ))}
      {running && waiting.length > 0 && <Waiting executionId={run.executionId} />}
      {running &&
        signInsOf(run).map(({ mcpId, mcpName }) => (
          <div key={mcpId} className="mt-2 flex flex-wrap items-center gap-3 rounded-lg border border-line px-3 py-2">
            <p className="min-w-0 flex-1" dir="auto">
              {texts.connection.needed(mcpName)}
            </p>
            <ConnectButton mcpId={mcpId} isForRun />
          </div>
        ))}
      {isSilent && (
        <p className="flex items-center gap-2 text-soft" role="status">
          <LoaderCircle size={15} aria-hidden className="animate-spin" />
          {run.retry ? texts.chat.retries(run.retry) : run.summary === '' ? texts.chat.summarizes : texts.chat.works}
        </p>
      )}
      <Warnings warnings={run.warnings} />
      {run.error && (
        <Ended
          executionId={run.executionId}
          isCancelled={run.status === 'cancelled'}
          code={run.error.code}
          reason={run.error.detail ?? run.error.message}
          onAgain={onAgain}
        />
      )}
    </div>
  )
}

/**
 * Announces what a run waits for, and its whole output when it ends. Screen readers would read an answer that grows
 * again and again.
 */
function useAnnounced(run: LiveRun, box: RefObject<HTMLDivElement | null>): void {
  const isRunning = run.status === 'running'
  const wasRunning = useRef(isRunning)
  useEffect(() => {
    // biome-ignore lint/performance/useDomNodeTextContent: without the texts of closed tool calls
    if (wasRunning.current && !isRunning) announce(box.current?.innerText ?? '')
    wasRunning.current = isRunning
  }, [isRunning, box])
  const needs = [
    ...waitingIn(run).map(({ name }) => texts.chat.waitsFor(name)),
    ...signInsOf(run).map(({ mcpName }) => texts.connection.needed(mcpName)),
  ].join('. ')
  useEffect(() => {
    if (isRunning && needs) announce(needs)
  }, [isRunning, needs])
}

function Waiting({ executionId }: { executionId: string }) {
  const { data } = useQuery(query('approvals.list', { status: 'pending', executionId }))
  return data?.approvals.map((approval) => <Decision key={approval.id} approval={approval} />)
}

export const Warnings = ({ warnings }: { warnings: readonly string[] }) =>
  [...new Set(warnings)].map((text) => (
    <p key={text} className="mt-2 flex items-start gap-2 rounded-lg bg-warn-tint px-3 py-2 text-warn">
      <CircleAlert size={15} aria-hidden className="mt-0.5 shrink-0" />
      <span className="min-w-0" dir="auto">
        {text}
      </span>
    </p>
  ))

type EndedProps = {
  executionId: string
  isCancelled: boolean
  code: string
  reason: string
  onAgain?: (() => void) | undefined
}

/** The end of a run that did not complete. */
export const Ended = ({ executionId, isCancelled, code, reason, onAgain }: EndedProps) =>
  isCancelled ? (
    <p className="mt-2 text-soft">{texts.chat.stopped}</p>
  ) : (
    <Failure code={code} reason={reason}>
      {onAgain && (
        <Button small icon={RotateCcw} onClick={onAgain}>
          {texts.tryAgain}
        </Button>
      )}
      <Link to="/runs/$runId" params={{ runId: executionId }} className="text-accent underline underline-offset-2">
        {texts.chat.lookAtRun}
      </Link>
    </Failure>
  )

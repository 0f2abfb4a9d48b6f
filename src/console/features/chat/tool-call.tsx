import { ChevronRight, CircleCheck, CircleX, Hand, LoaderCircle } from 'lucide-react'
import { Code } from '../../components/code.tsx'
import { pretty } from '../../lib/format.ts'
import { texts } from '../../texts.ts'

type Call = { name: string; input?: unknown; result: string | null; isError: boolean }

function State({ call, waits, running }: { call: Call; waits: boolean; running: boolean }) {
  if (waits) return <Hand size={15} aria-label={texts.chat.waits} className="text-warn" />
  if (call.result === null && running)
    return <LoaderCircle size={15} aria-label={texts.chat.runs} className="animate-spin text-soft" />
  if (call.isError || call.result === null)
    return <CircleX size={15} aria-label={texts.chat.callFailed} className="text-danger" />
  return <CircleCheck size={15} aria-label={texts.chat.callDone} className="text-good" />
}

/** A collapsed tool call: its name and outcome, and inside its input and result. */
export function ToolCall({ call, waits, running }: { call: Call; waits: boolean; running: boolean }) {
  return (
    <details className="group/call my-2 rounded-lg border border-line bg-panel">
      <summary className="flex list-none items-center gap-2 px-3 py-2">
        <ChevronRight
          size={14}
          aria-hidden
          className="shrink-0 text-soft transition-transform group-open/call:rotate-90"
        />
        <State call={call} waits={waits} running={running} />
        <bdi className="min-w-0 truncate font-mono text-xs">{call.name}</bdi>
      </summary>
      <div className="space-y-2 border-line border-t px-3 py-3">
        <p className="text-soft text-xs">{texts.chat.input}</p>
        <Code text={pretty(call.input)} />
        {call.result !== null && (
          <>
            <p className="text-soft text-xs">{call.isError ? texts.chat.errorResult : texts.chat.result}</p>
            <Code text={call.result} />
          </>
        )}
      </div>
    </details>
  )
}

function Folded({ title, text }: { title: string; text: string }) {
  return (
    <details className="group/folded my-2 text-soft">
      <summary className="flex list-none items-center gap-1.5 text-xs">
        <ChevronRight size={14} aria-hidden className="transition-transform group-open/folded:rotate-90" />
        {title}
      </summary>
      <div className="mt-1 whitespace-pre-wrap border-line border-l-2 pl-3 text-sm" dir="auto">
        {text}
      </div>
    </details>
  )
}

/** The collapsed reasoning of the model before its answer. */
export const Reasoning = ({ text, active }: { text: string; active: boolean }) => (
  <Folded title={active ? texts.chat.thinks : texts.chat.thought} text={text} />
)

/** The collapsed summary that later runs get instead of earlier turns. */
export const Summary = ({ text }: { text: string }) => <Folded title={texts.chat.summarized} text={text} />

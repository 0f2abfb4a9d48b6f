import type { Db } from '../../../db/client.ts'
import {
  type ExecutionRow,
  type MessageData,
  readEvents,
  type TextProgress,
  textOf,
  textSoFar,
  type Warning,
} from '../events/events.ts'
import type { RunUsage } from './run.ts'
import { assistantEvent, loadSteps, resultEvent, type Step } from './steps.ts'
import { joined, warningsOf } from './warnings.ts'

/** Point from which a run resumes. */
export type Checkpoint = {
  steps: Step[]
  usage: RunUsage
  answer: TextProgress
  /** Messages published first after the resumption. */
  opening: MessageData[]
  /** Warnings that earlier attempts have published. */
  warnings: readonly Warning[]
}

export const BEGIN: Checkpoint = {
  steps: [],
  usage: { inputTokens: 0, outputTokens: 0, usageEstimated: false },
  answer: { step: 0, text: '' },
  opening: [],
  warnings: [],
}

/** Loads the point from which a suspended run resumes. */
export async function loadCheckpoint(db: Db, row: ExecutionRow): Promise<Checkpoint> {
  const steps = await loadSteps(db, row.id)
  const last = steps.at(-1)
  const warnings = warningsOf(row)
  if (!last) return { ...BEGIN, warnings, usage: { ...BEGIN.usage, usageEstimated: row.usageEstimated } }
  const sum = (key: 'inputTokens' | 'outputTokens') => steps.reduce((total, { usage }) => total + usage[key], 0)
  const usageEstimated = row.usageEstimated || last.usage.usageEstimated
  return {
    steps,
    usage: { inputTokens: sum('inputTokens'), outputTokens: sum('outputTokens'), usageEstimated },
    answer: { step: last.step, text: textOf(last.parts) },
    opening: [],
    warnings,
  }
}

/** Messages that do not count as the beginning of an answer, beside warnings. */
const BEFORE_ANSWER: ReadonlySet<string> = new Set(['retry', 'summary'])

/**
 * Loads the checkpoint of a run whose process has died. Its last step may be stored but not published, and the
 * beginning of a lost answer may be published. `hasOutput`: whether output may have been published; `answer`: the last
 * published text.
 */
export async function loadRemains(db: Db, row: ExecutionRow) {
  const checkpoint = await loadCheckpoint(db, row)
  let answer: TextProgress = BEGIN.answer
  let hasOutput = false
  const warned: Warning[] = []
  let step = 0
  let results = new Set<string>()
  for await (const events of readEvents(db, row.id, 0)) {
    for (const { event, data } of events) {
      if (event !== 'message') continue
      if (data.messageType === 'warning') warned.push({ code: data.code, text: data.text })
      else if (!BEFORE_ANSWER.has(data.messageType)) hasOutput = true
      answer = textSoFar(answer, data)
      if (data.messageType === 'assistant') {
        step = data.step
        results = new Set()
      } else if (data.messageType === 'tool_result') results.add(data.toolUseId)
    }
  }
  const missing = checkpoint.steps.flatMap((kept): MessageData[] => {
    const stored = kept.step === step ? results : new Set()
    const answers = kept.calls.flatMap((call) =>
      call.result && !stored.has(call.id) ? resultEvent(call, call.result) : [],
    )
    return kept.step > step ? [assistantEvent(kept.step, kept.parts), ...answers] : kept.step === step ? answers : []
  })
  const opening: MessageData[] = [{ messageType: 'resumed', step: checkpoint.answer.step + 1 }, ...missing]
  // The interrupted request may have used tokens that are counted nowhere.
  const usage = { ...checkpoint.usage, usageEstimated: true }
  const warnings = joined(checkpoint.warnings, warned)
  const isBegun = checkpoint.steps.length > 0
  return { hasOutput, answer, warnings, checkpoint: isBegun ? { ...checkpoint, usage, opening, warnings } : null }
}

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

/** A run whose process has died. */
export type Recovered = {
  /** Whether output may have been published. */
  hasOutput: boolean
  /** The last published text. */
  answer: TextProgress
  warnings: readonly Warning[]
  /** Point from which the run resumes; null if it has no complete step. */
  checkpoint: Checkpoint | null
}

/** The published events of a run whose process has died, of which the last ones may be missing. */
type Published = Omit<Recovered, 'checkpoint'> & {
  /** The last published step, and the ids of its published results. */
  step: number
  results: ReadonlySet<string>
}

async function readPublished(db: Db, executionId: string): Promise<Published> {
  let answer: TextProgress = BEGIN.answer
  let hasOutput = false
  const warnings: Warning[] = []
  let step = 0
  let results = new Set<string>()
  for await (const events of readEvents(db, executionId, 0)) {
    for (const { event, data } of events) {
      if (event !== 'message') continue
      if (data.messageType === 'warning') warnings.push({ code: data.code, text: data.text })
      else if (!BEFORE_ANSWER.has(data.messageType)) hasOutput = true
      answer = textSoFar(answer, data)
      if (data.messageType === 'assistant') {
        step = data.step
        results = new Set()
      } else if (data.messageType === 'tool_result') results.add(data.toolUseId)
    }
  }
  return { hasOutput, answer, warnings, step, results }
}

/** Returns the messages of a stored step that were not published. */
function unpublishedOf(stored: Step, { step, results }: Published): MessageData[] {
  if (stored.step < step) return []
  const isPublished = stored.step === step
  const missing = stored.calls.flatMap((call) =>
    call.result && !(isPublished && results.has(call.id)) ? resultEvent(call, call.result) : [],
  )
  return isPublished ? missing : [assistantEvent(stored.step, stored.parts), ...missing]
}

/**
 * Recovers the checkpoint of a run whose process has died. Its last step may be stored but not published, and the
 * beginning of a lost answer may be published.
 */
export async function recoverCheckpoint(db: Db, row: ExecutionRow): Promise<Recovered> {
  const { steps, usage, answer, ...stored } = await loadCheckpoint(db, row)
  const published = await readPublished(db, row.id)
  const warnings = joined(stored.warnings, published.warnings)
  if (!steps.length) return { ...published, warnings, checkpoint: null }
  const missing = steps.flatMap((step) => unpublishedOf(step, published))
  const opening: MessageData[] = [{ messageType: 'resumed', step: answer.step + 1 }, ...missing]
  // The interrupted request may have used tokens that are counted nowhere.
  const checkpoint = { steps, usage: { ...usage, usageEstimated: true }, answer, opening, warnings }
  return { ...published, warnings, checkpoint }
}

import type { Actor } from '../../auth/actor.ts'
import type { Deps } from '../../deps.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import { followFrom } from '../../executions/service.ts'
import type { ExecutionEvent, MessageData } from '../../wire.ts'

/**
 * A part of a run for the stream writers of other protocols. `seq` is the number of its event: it grows, and several parts
 * may share it. The parts of a run are the same each time that they are read, apart from fragments that a crash has lost.
 */
export type Part = { seq: number } & (
  | { type: 'start'; executionId: string; chatId: string; sessionId: string }
  /** The first part of a model step, and its last. */
  | { type: 'step-start'; step: number }
  | { type: 'step-end'; step: number }
  /** Fragments of the answer and of the reasoning. Each kind of text ends before another part of the step begins. */
  | { type: 'text-start' | 'text-end' | 'reasoning-start' | 'reasoning-end'; id: string; step: number }
  | { type: 'text-delta' | 'reasoning-delta'; id: string; step: number; text: string }
  | { type: 'tool-call'; step: number; id: string; name: string; input: unknown }
  | { type: 'tool-result'; id: string; content: string; isError: boolean }
  /** The run waits for a person, or for the client to call its own tool. */
  | { type: 'approval'; approvalId: string; id: string; name: string }
  | { type: 'client-tool'; id: string; name: string; input: unknown }
  /** The server restarted: what this step has shown is void, and it begins anew. Its open texts have not ended. */
  | { type: 'reset'; step: number }
  | { type: 'warning'; code: string; text: string }
  | { type: 'retry'; attempt: number; afterMs: number; reason: string }
  | { type: 'completed'; usage: { input_tokens: number; output_tokens: number }; stopReason: string | null }
  | {
      type: 'failed' | 'cancelled'
      message: string
      code: string
      detail?: string
      stopReason: string | null
    }
)

type PartOf = Part extends infer One ? (One extends Part ? Omit<One, 'seq'> : never) : never

/**
 * Follows a run from its first event on as parts, in batches, live while it runs. Throws 503 if this process shuts down.
 * Ends early if the caller has gone or has lost access.
 */
export async function* followParts(
  actor: Actor,
  deps: Deps,
  row: ExecutionRow,
  streamTo: (actor: Actor) => AbortSignal,
): AsyncGenerator<Part[]> {
  const toParts = createPartReader()
  for await (const events of followFrom(actor, deps, row, 0, streamTo, { content: 'all' })) {
    yield events.flatMap((event) => toParts(event).map((part) => ({ ...part, seq: event.seq }) as Part))
  }
}

/** State of the step that is being read. */
type Step = {
  number: number
  /** The text that is open, and the number of texts of the step so far. */
  open: 'text' | 'reasoning' | null
  texts: number
  /** What was shown of the answer and of the reasoning. */
  text: string
  reasoning: string
}

/** Creates a function that converts the events of one run to parts. It expects them from the first one on. */
export function createPartReader(): (event: ExecutionEvent) => PartOf[] {
  let step: Step | null = null
  const inputs = new Map<string, unknown>()

  const idOf = ({ number, texts, open }: Step) => `${open}_${number}_${texts}`

  function close(): PartOf[] {
    if (!step?.open) return []
    const parts: PartOf[] = [{ type: `${step.open}-end`, id: idOf(step), step: step.number }]
    step.open = null
    return parts
  }

  function endStep(): PartOf[] {
    if (!step) return []
    const parts: PartOf[] = [...close(), { type: 'step-end', step: step.number }]
    step = null
    return parts
  }

  function begin(number: number): PartOf[] {
    if (step?.number === number) return []
    step = { number, open: null, texts: 0, text: '', reasoning: '' }
    return [{ type: 'step-start', step: number }]
  }

  function add(kind: 'text' | 'reasoning', number: number, text: string): PartOf[] {
    const parts = begin(number)
    const current = step!
    if (current.open !== kind) {
      parts.push(...close())
      current.open = kind
      current.texts++
      parts.push({ type: `${kind}-start`, id: idOf(current), step: number })
    }
    current[kind] += text
    return [...parts, { type: `${kind}-delta`, id: idOf(current), step: number, text }]
  }

  /** Adds what the fragments lack of a whole text, because a crash has lost them or the model sent none. */
  function complete(kind: 'text' | 'reasoning', number: number, whole: string): PartOf[] {
    const shown = step?.number === number ? step[kind] : ''
    const rest = whole.startsWith(shown) ? whole.slice(shown.length) : ''
    return rest ? add(kind, number, rest) : []
  }

  function readMessage(data: MessageData): PartOf[] {
    switch (data.messageType) {
      case 'stream_event':
        return add(data.delta.type === 'text_delta' ? 'text' : 'reasoning', data.step, data.delta.text)
      case 'assistant': {
        const thinking = data.content.flatMap((block) => (block.type === 'thinking' ? block.text : [])).join('')
        const calls = data.content.flatMap((block) => (block.type === 'tool_use' ? block : []))
        for (const { id, input } of calls) inputs.set(id, input)
        const parts = [
          ...begin(data.step),
          ...complete('reasoning', data.step, thinking),
          ...complete('text', data.step, data.text),
          ...close(),
          ...calls.map(({ id, name, input }) => ({ type: 'tool-call' as const, step: data.step, id, name, input })),
          { type: 'step-end' as const, step: data.step },
        ]
        step = null
        return parts
      }
      case 'tool_result':
        return [{ type: 'tool-result', id: data.toolUseId, content: data.content, isError: data.isError }]
      case 'approval':
        return [{ type: 'approval', approvalId: data.approvalId, id: data.toolUseId, name: data.name }]
      case 'client_tool':
        return [{ type: 'client-tool', id: data.toolUseId, name: data.name, input: inputs.get(data.toolUseId) ?? {} }]
      case 'warning':
        return [{ type: 'warning', code: data.code, text: data.text }]
      case 'retry': {
        const { attempt, afterMs, reason } = data
        return [{ type: 'retry', attempt, afterMs, reason }]
      }
      case 'resumed': {
        const isShown = step?.number === data.step
        step = null
        return isShown ? [{ type: 'reset', step: data.step }] : []
      }
    }
  }

  return (event) => {
    switch (event.event) {
      case 'meta':
        return [{ type: 'start', ...event.data }]
      case 'message':
        return readMessage(event.data)
      case 'result': {
        const { usage, stopReason } = event.data
        return [...endStep(), { type: 'completed', usage, stopReason }]
      }
      case 'error': {
        const { message, code, detail, status, stopReason } = event.data
        return [...endStep(), { type: status, message, code, ...(detail !== undefined && { detail }), stopReason }]
      }
    }
  }
}

import type { Actor } from '../../auth/actor.ts'
import { ACCESS_ENDED } from '../../auth/revocations.ts'
import type { Deps } from '../../deps.ts'
import { unauthorized } from '../../errors.ts'
import { type ExecutionRow, isTerminal, readEvents } from '../../executions/engine/events/events.ts'
import { clientToolName } from '../../executions/engine/queue/client-tools.ts'
import type { Overrides } from '../../executions/engine/queue/requests.ts'
import { followFrom } from '../../executions/follow.ts'
import { fromBase62, toBase62 } from '../../lib/id.ts'
import { asObject, asText } from '../../lib/unknown.ts'
import type { Context } from '../../trpc.ts'
import type { ExecutionEvent, MessageData } from '../../wire.ts'

/**
 * A part of a run for the stream writers of other protocols. `seq` and `at` are those of its event: the number grows,
 * and several parts may share it. The parts of a run are the same each time that they are read, apart from fragments
 * that a crash has lost.
 */
export type Part = { seq: number; at: Date } & (
  | { type: 'start'; executionId: string; chatId: string; sessionId: string }
  /** The first part of a model step, and its last. */
  | { type: 'step-start'; step: number }
  | { type: 'step-end'; step: number }
  /** Fragments of the answer and of the reasoning. Each kind of text ends before another part of the step begins. */
  | { type: 'text-start' | 'text-end' | 'reasoning-start' | 'reasoning-end'; id: string; step: number }
  | { type: 'text-delta' | 'reasoning-delta'; id: string; step: number; text: string }
  | ({ type: 'tool-call'; step: number; isClients: boolean } & ClientCall)
  | { type: 'tool-result'; id: string; content: string; isError: boolean }
  /** The run waits for a person, or for the client to call its own tools. */
  | { type: 'approval'; approvalId: string; id: string; name: string; input: unknown }
  | { type: 'client-tools'; calls: readonly ClientCall[]; usage: Tokens }
  /**
   * The server restarted: the earlier output of this step is void, and the step starts again. Its open texts have not
   * ended. Without `isShown` the log has none of the step, but a client may have seen fragments that the crash has
   * lost.
   */
  | { type: 'reset'; step: number; isShown: boolean }
  | { type: 'warning'; code: string; text: string }
  /** The model summarizes earlier turns before it answers. */
  | { type: 'summarizing' }
  | { type: 'retry'; attempt: number; afterMs: number; reason: string }
  | { type: 'completed'; usage: Tokens; stopReason: string | null }
  | {
      type: 'failed' | 'cancelled'
      message: string
      code: string
      detail?: string
      stopReason: string | null
    }
)

/** The tokens since the client last had to call tools, because clients add up those of their requests. */
export type Tokens = { input_tokens: number; output_tokens: number }

/** Returns whether a part ends the answer to the client: the run has ended, or the client must call tools. */
export const endsAnswer = ({ type }: Part): boolean =>
  type === 'client-tools' || type === 'completed' || type === 'failed' || type === 'cancelled'

/** Returns whether the run waits for a person after a part, unless the person has acted since. */
export const asksPerson = (part: Part): boolean =>
  part.type === 'approval' || (part.type === 'warning' && part.code === 'authorization')

/** Returns the text of a failed or cancelled run for protocols with one text for an error. */
export const failureText = ({ message, detail }: Extract<Part, { type: 'failed' | 'cancelled' }>): string =>
  detail ? `${message}: ${detail}` : message

type PartOf = Part extends infer One ? (One extends Part ? Omit<One, 'seq' | 'at'> : never) : never

/** A call that the client has to make, by the client's own name of the tool. `isCustom`: its input is `{input: <text>}`. */
export type ClientCall = { id: string; name: string; input: unknown; isCustom?: boolean }

/** Returns the text that a model wrote for a custom tool, maybe under another name. */
function textIn(input: unknown): string {
  const given = asObject(input)
  const [only, ...others] = 'input' in given ? [given.input] : Object.values(given)
  return typeof only === 'string' && !others.length ? only : JSON.stringify(input)
}

/** Returns the text that a custom tool gets from a call. */
export const customInputOf = ({ input }: Pick<ClientCall, 'input'>): string => asText(asObject(input).input)

/**
 * Returns the id of a call, unique among all runs: models repeat theirs. It has 40 characters, which is the maximum of
 * OpenAI's models, to which a client may send it when it continues with another model.
 */
export function toCallId(executionId: string, step: number, position: number): string {
  const [, time, random] = executionId.split('-')
  return `call_${toBase62(Number(time), 8)}${random}${toBase62(step, 3)}${toBase62(position, 2)}`
}

/** A call as its id names it: by its position in the step, or in the long ids of earlier servers by the model's id. */
type ReadCall = { executionId: string; step: number; position?: number; toolUseId?: string }

/** Reads an id of {@link Part}. Returns null for a foreign id. */
export function readCallId(id: string): ReadCall | null {
  const [, time, random, last, position] =
    /^call_([0-9A-Za-z]{8})([0-9A-Za-z]{22})([0-9A-Za-z]{3})([0-9A-Za-z]{2})$/.exec(id) ?? []
  if (time && last && position) {
    const executionId = `exec-${fromBase62(time)}-${random}`
    return { executionId, step: fromBase62(last), position: fromBase62(position) }
  }
  const [, executionId, step, toolUseId] = /^call_(exec-\d{1,15}-[0-9A-Za-z]{22})_(\d{1,9})_(.*)$/s.exec(id) ?? []
  return executionId && step && toolUseId !== undefined ? { executionId, step: Number(step), toolUseId } : null
}

/**
 * Follows a run as parts, in batches, live while it runs; only those of events after a number. Throws 503 if this
 * process shuts down, and 401 or 404 if the caller loses access, because clients take an early end for the end of the
 * answer. Ends early if the caller has disconnected.
 */
export async function* followParts(
  { deps, streamTo }: Pick<Context, 'deps' | 'streamTo'>,
  actor: Actor,
  row: ExecutionRow,
  after = 0,
): AsyncGenerator<Part[]> {
  // From the first event on, because later ones refer to earlier ones.
  const toParts = createPartReader(row)
  let signal: AbortSignal | undefined
  const options = {
    after: 0,
    streamTo: (caller: Actor) => (signal = streamTo(caller)),
    isWhole: true,
    content: 'all' as const,
  }
  let isOver = false
  for await (const events of followFrom(actor, deps, row, options)) {
    isOver = events.some(isTerminal)
    const parts = events.flatMap(toParts)
    const later = after ? parts.filter(({ seq }) => seq > after) : parts
    if (later.length) yield later
  }
  if (!isOver && signal?.reason === ACCESS_ENDED) throw unauthorized('Unauthorized. Invalid or expired token')
}

/** Reads the stored parts of a run, from the first event on. */
export async function* readParts({ db }: Pick<Deps, 'db'>, row: ExecutionRow): AsyncGenerator<Part> {
  const toParts = createPartReader(row)
  for await (const events of readEvents(db, row.id, 0)) for (const event of events) yield* toParts(event)
}

const connectNote = (name: string) =>
  `The run waits until its user connects to the MCP server ${name} in the console, under MCP servers`

const plain = ({ id, name, input, isCustom }: ClientCall): ClientCall => ({
  id,
  name,
  input,
  ...(isCustom && { isCustom }),
})

/** State of the step that is being read. */
type Step = {
  number: number
  /** The text that is open, and the number of texts of the step so far. */
  open: 'text' | 'reasoning' | null
  texts: number
  /** The sent texts of the answer and of the reasoning. */
  text: string
  reasoning: string
}

/** Creates a function that converts the events of one run to parts. It expects them from the first one on. */
export function createPartReader({
  id: executionId,
  overrides,
}: Pick<ExecutionRow, 'id' | 'overrides'>): (event: ExecutionEvent) => Part[] {
  const { clientTools = [] } = overrides as Overrides
  const ownTools = new Map(clientTools.map((tool) => [clientToolName(tool.name), tool]))
  let step: Step | null = null
  /** The calls of the latest step, by the ids of the model. */
  let calls = new Map<string, ClientCall>()
  let reported: Tokens = { input_tokens: 0, output_tokens: 0 }

  /** Returns the tokens of a run that no earlier part has reported. */
  function report(total: Tokens): Tokens {
    const before = reported
    reported = total
    return {
      input_tokens: total.input_tokens - before.input_tokens,
      output_tokens: total.output_tokens - before.output_tokens,
    }
  }

  const callOf = (toolUseId: string): ClientCall =>
    calls.get(toolUseId) ?? { id: toCallId(executionId, 0, 0), name: '', input: {} }

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

  function beginStep(number: number): PartOf[] {
    if (step?.number === number) return []
    step = { number, open: null, texts: 0, text: '', reasoning: '' }
    return [{ type: 'step-start', step: number }]
  }

  function add(kind: 'text' | 'reasoning', number: number, text: string): PartOf[] {
    const parts = beginStep(number)
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

  /** Adds the rest of a whole text beyond its fragments, which a crash has lost or the model did not send. */
  function complete(kind: 'text' | 'reasoning', number: number, whole: string): PartOf[] {
    const before = step?.number === number ? step[kind] : ''
    const rest = whole.startsWith(before) ? whole.slice(before.length) : ''
    return rest ? add(kind, number, rest) : []
  }

  function readMessage(data: MessageData): PartOf[] {
    switch (data.messageType) {
      case 'stream_event':
        return add(data.delta.type === 'text_delta' ? 'text' : 'reasoning', data.step, data.delta.text)
      case 'assistant': {
        const thinking = data.content.flatMap((block) => (block.type === 'thinking' ? block.text : [])).join('')
        const made = data.content.flatMap((block) => (block.type === 'tool_use' ? block : []))
        const toCall = ({ name, input }: (typeof made)[number], position: number) => {
          const own = ownTools.get(name)
          return {
            id: toCallId(executionId, data.step, position),
            name: own?.name ?? name,
            isClients: own !== undefined,
            ...(own?.format ? { input: { input: textIn(input) }, isCustom: true } : { input }),
          }
        }
        calls = new Map(made.map((block, position) => [block.id, toCall(block, position)]))
        const parts = [
          ...beginStep(data.step),
          ...complete('reasoning', data.step, thinking),
          ...complete('text', data.step, data.text),
          ...close(),
          ...made.map((block, position) => ({
            type: 'tool-call' as const,
            step: data.step,
            ...toCall(block, position),
          })),
          { type: 'step-end' as const, step: data.step },
        ]
        step = null
        return parts
      }
      case 'tool_result':
        return [{ type: 'tool-result', id: callOf(data.toolUseId).id, content: data.content, isError: data.isError }]
      case 'approval':
        return [{ type: 'approval', approvalId: data.approvalId, ...plain(callOf(data.toolUseId)) }]
      case 'client_tool':
        return [
          {
            type: 'client-tools',
            calls: data.calls.map(({ id }) => plain(callOf(id))),
            usage: report(data.usage ?? reported),
          },
        ]
      case 'authorization':
        return [{ type: 'warning', code: 'authorization', text: connectNote(data.mcpName) }]
      case 'warning':
        return [{ type: 'warning', code: data.code, text: data.text }]
      case 'retry': {
        const { attempt, afterMs, reason } = data
        return [{ type: 'retry', attempt, afterMs, reason }]
      }
      case 'summary':
        return data.text === null ? [{ type: 'summarizing' }] : []
      case 'resumed': {
        const isShown = step?.number === data.step
        step = null
        return [{ type: 'reset', step: data.step, isShown }]
      }
    }
  }

  function read(event: ExecutionEvent): PartOf[] {
    switch (event.event) {
      case 'meta':
        return [{ type: 'start', ...event.data }]
      case 'message':
        return readMessage(event.data)
      case 'result': {
        const { usage, stopReason } = event.data
        return [...endStep(), { type: 'completed', usage: report(usage), stopReason }]
      }
      case 'error': {
        const { message, code, detail, status, stopReason } = event.data
        return [...endStep(), { type: status, message, code, ...(detail !== undefined && { detail }), stopReason }]
      }
    }
  }

  return (event) => read(event).map((part) => ({ ...part, seq: event.seq, at: event.at }) as Part)
}

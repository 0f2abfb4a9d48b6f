import type {
  LanguageModelV4,
  LanguageModelV4Prompt,
  LanguageModelV4StreamPart,
  LanguageModelV4ToolCall,
} from '@ai-sdk/provider'
import type { ContentBlock, MessageData } from './events.ts'
import { ModelError } from './model-errors.ts'

/** What a run is made of. */
export type RunInput = {
  model: LanguageModelV4
  agentName: string
  prompt: LanguageModelV4Prompt
  maxTurns: number
  /** How long the model may say nothing (ms). */
  idleTimeout: number
  signal: AbortSignal
}

export type RunUsage = { inputTokens: number; outputTokens: number; usageEstimated: boolean }

/** The model said nothing for too long, or the whole run took too long (contract.md section 4, "Time"). */
export class TimeoutError extends Error {
  override name = 'TimeoutError'
}

/**
 * One run: asks the model, step by step while it calls tools, and yields what it says. Adds to `usage` as it goes, so
 * that a run that is cut short has counted. Throws what the provider throws, the signal's reason when aborted, and
 * {@link TimeoutError}.
 */
export async function* run(input: RunInput, usage: RunUsage): AsyncGenerator<MessageData> {
  const prompt = [...input.prompt]
  for (let step = 1; step <= input.maxTurns; step++) {
    let text = ''
    let finished = false
    const calls: LanguageModelV4ToolCall[] = []
    try {
      for await (const part of callModel(input, prompt)) {
        if (part.type === 'text-delta') {
          const delta = part.delta.replaceAll('\0', '')
          text += delta
          if (delta) yield { messageType: 'stream_event', step, delta: { type: 'text_delta', text: delta } }
        } else if (part.type === 'tool-call') calls.push(part)
        else if (part.type === 'error') throw part.error
        else if (part.type === 'finish') {
          finished = true
          count(usage, part)
          if (BROKEN_OFF.has(part.finishReason.unified)) throw new ModelError('The model broke off its reply')
        }
      }
    } finally {
      if (!finished) usage.usageEstimated = true
    }
    const uses = calls.map(({ toolCallId: id, toolName: name, input, providerMetadata }) => ({
      block: { type: 'tool_use' as const, id, name, input: parseInput(input) },
      // Some models refuse their own calls without the signature that came with them.
      ...(providerMetadata && { providerOptions: providerMetadata }),
    }))
    const content: ContentBlock[] = [
      ...(text || !uses.length ? [{ type: 'text' as const, text }] : []),
      ...uses.map(({ block }) => block),
    ]
    yield { messageType: 'assistant', step, content }
    if (!uses.length) return
    const results = uses.map(({ block: { id, name } }) => ({ id, name, content: `There is no tool named ${name}` }))
    for (const { id, content } of results) {
      yield { messageType: 'tool_result', toolUseId: id, content, isError: true }
    }
    prompt.push(
      {
        role: 'assistant',
        content: [
          ...(text ? [{ type: 'text' as const, text }] : []),
          ...uses.map(({ block: { id, name, input }, ...options }) => ({
            type: 'tool-call' as const,
            toolCallId: id,
            toolName: name,
            input,
            ...options,
          })),
        ],
      },
      {
        role: 'tool',
        content: results.map(({ id, name, content }) => ({
          type: 'tool-result' as const,
          toolCallId: id,
          toolName: name,
          output: { type: 'error-text' as const, value: content },
        })),
      },
    )
  }
}

/** How a provider says that its reply is not whole, though its stream ended in order. */
const BROKEN_OFF: ReadonlySet<string> = new Set(['error', 'interrupted'])

/** One model call. Its request is aborted with the signal, and when nothing came for `idleTimeout`. */
async function* callModel(input: RunInput, prompt: LanguageModelV4Prompt): AsyncGenerator<LanguageModelV4StreamPart> {
  const call = new AbortController()
  const abort = () => call.abort(input.signal.reason)
  const silence = () => call.abort(new TimeoutError(`The model was silent for ${input.idleTimeout / 1000} s`))
  input.signal.addEventListener('abort', abort)
  const watchdog = setTimeout(silence, input.idleTimeout)
  try {
    input.signal.throwIfAborted()
    const { stream } = await input.model.doStream({
      prompt,
      abortSignal: call.signal,
      // Hidden thinking and pings are no parts of their own, but a model that sends them is not silent.
      includeRawChunks: true,
      providerOptions: { offline: { agentName: input.agentName } },
    })
    const reader = stream.getReader()
    // A provider that does not heed the signal in mid-stream must not keep the run waiting.
    call.signal.addEventListener('abort', () => void reader.cancel(call.signal.reason).catch(() => {}))
    for (;;) {
      const { done, value } = await reader.read()
      call.signal.throwIfAborted()
      if (done) return
      watchdog.refresh()
      yield value
    }
  } catch (error) {
    throw call.signal.aborted ? call.signal.reason : error
  } finally {
    clearTimeout(watchdog)
    input.signal.removeEventListener('abort', abort)
    if (!call.signal.aborted) call.abort()
  }
}

/** What the provider does not report is 0, and said to be unknown (contract.md section 8). */
function count(usage: RunUsage, { usage: reported }: Extract<LanguageModelV4StreamPart, { type: 'finish' }>): void {
  const [input, output] = [reported.inputTokens.total, reported.outputTokens.total]
  usage.inputTokens += input ?? 0
  usage.outputTokens += output ?? 0
  if (input === undefined || output === undefined) usage.usageEstimated = true
}

function parseInput(input: string): unknown {
  try {
    return JSON.parse(input || '{}')
  } catch {
    return input
  }
}

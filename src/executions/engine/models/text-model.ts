import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4FinishReason,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
} from '@ai-sdk/provider'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { unifiedReason } from './finish-reasons.ts'
import { failureIn, isUnknownUsage } from './provider-events.ts'
import { wholeInput } from './streamed-calls.ts'

/** A part of an answer: one of the AI SDK's, or what the answer has used, as far as that is known before its end. */
export type Part = LanguageModelV4StreamPart | { type: 'usage'; usage: LanguageModelV4Usage }

/** An answer as it comes: together what has come together, since each time that somebody waits costs as much as a part. */
export type Parts = AsyncIterable<readonly Part[]>

/** The options of one request. */
export type CallOptions = LanguageModelV4CallOptions & {
  /** Changes the body of a request to an OpenAI-compatible server before it is sent. */
  changeBody?: (body: Fields) => Fields
}

/** What the engine needs of a model. */
export type TextModel = Pick<LanguageModelV4, 'provider' | 'modelId'> & {
  doStream(options: CallOptions): PromiseLike<{ stream: Parts }>
  /** Finds thinking in the whole text of an answer that has no reasoning; null if there is none. */
  splitReasoning?(text: string): { reasoning: string; text: string } | null
}

/** A model of the AI SDK's. */
export const textModel = (model: LanguageModelV4): TextModel => ({
  provider: model.provider,
  modelId: model.modelId,
  async doStream(options) {
    const { stream } = await model.doStream(options)
    return { stream: readAll(stream, options.abortSignal) }
  },
})

function reasonOf({ unified, raw = '' }: LanguageModelV4FinishReason, blocked: string): LanguageModelV4FinishReason {
  if (blocked && !raw) return { unified: 'content-filter', raw: blocked }
  const meaning = unifiedReason(raw, unified)
  // That it has stopped in order, the package knows better: it has seen the calls.
  return { unified: meaning === 'stop' ? unified : meaning, raw: raw || undefined }
}

type Finish = Extract<LanguageModelV4StreamPart, { type: 'finish' }>

/** The last part, with what the provider package does not say or says otherwise. */
function finished(part: Finish, blocked: string, isUsageKnown: boolean): Finish {
  const { inputTokens, outputTokens } = part.usage
  const usage = isUsageKnown
    ? part.usage
    : {
        ...part.usage,
        inputTokens: { ...inputTokens, total: inputTokens.total || undefined },
        outputTokens: { ...outputTokens, total: outputTokens.total || undefined },
      }
  return { ...part, usage, finishReason: reasonOf(part.finishReason, blocked) }
}

/** A provider's stream, which need not heed the signal itself. */
async function* readAll(
  stream: ReadableStream<LanguageModelV4StreamPart>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Part[]> {
  const reader = stream.getReader()
  let blocked = ''
  let isUsageKnown = true
  const cancel = () => void reader.cancel(signal?.reason).catch(() => {})
  signal?.addEventListener('abort', cancel)
  try {
    for (;;) {
      const { done, value } = await reader.read()
      // It ends so too when it was cancelled.
      signal?.throwIfAborted()
      if (done) return
      if (value.type === 'raw') {
        const failure = failureIn(value.rawValue)
        if (failure) throw failure
        if (isUnknownUsage(value.rawValue)) isUsageKnown = false
        // Google says nothing of a prompt that it blocks but this.
        blocked ||= asText(asObject(asObject(value.rawValue).promptFeedback).blockReason)
      }
      // A call that the provider makes itself is no call of this service.
      if (value.type === 'tool-call' && value.providerExecuted) continue
      if (value.type === 'finish') yield [finished(value, blocked, isUsageKnown)]
      else yield [value.type === 'tool-call' ? { ...value, input: wholeInput(value.input) } : value]
    }
  } finally {
    signal?.removeEventListener('abort', cancel)
  }
}

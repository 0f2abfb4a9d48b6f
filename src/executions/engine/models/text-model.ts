import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4FinishReason,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
  SharedV4ProviderOptions,
  SharedV4Warning,
} from '@ai-sdk/provider'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import { wholeInput } from './call-inputs.ts'
import { unifiedReason } from './finish-reasons.ts'
import { watchOptions } from './option-reads.ts'
import { failureIn, isUnknownUsage, requestChange } from './provider-events.ts'
import { interimUsage } from './reported-usage.ts'

/** A part of an answer: a part of the AI SDK, or interim usage. */
export type Part = LanguageModelV4StreamPart | { type: 'usage'; usage: LanguageModelV4Usage }

/** An answer in batches of parts that arrived together, because each await costs as much as a part. */
export type Parts = AsyncIterable<readonly Part[]>

/** The options of one request. */
export type CallOptions = LanguageModelV4CallOptions & {
  /** Changes the body of a request before it is sent. */
  changeBody?: (body: Fields) => Fields
  /** Headers that a provider package adds and that are not sent. */
  omitHeaders?: readonly string[]
}

/** The model interface that the engine uses. */
export type TextModel = Pick<LanguageModelV4, 'provider' | 'modelId'> & {
  doStream(options: CallOptions): PromiseLike<{ stream: Parts }>
  /** Splits reasoning from the complete text of an answer without a reasoning part. Returns null if there is none. */
  splitReasoning?(text: string): { reasoning: string; text: string } | null
}

/** Adapts a model of the AI SDK. */
export const textModel = (model: LanguageModelV4): TextModel => ({
  provider: model.provider,
  modelId: model.modelId,
  async doStream({ changeBody, omitHeaders, ...given }) {
    const name = model.provider.split('.', 1)[0] ?? ''
    const own = given.providerOptions?.[name]
    const watched = own && watchOptions(own)
    const providerOptions = { ...given.providerOptions, ...(watched && { [name]: watched.options }) }
    const options = watched ? { ...given, providerOptions: providerOptions as SharedV4ProviderOptions } : given
    const { stream } = await (changeBody
      ? requestChange.run({ changeBody, omitHeaders }, () => model.doStream(options))
      : model.doStream(options))
    const unknown = watched?.unread().map((option) => unsupported(name, option)) ?? []
    const named = (warning: SharedV4Warning) =>
      warning.type === 'unsupported' && own && warning.feature in own ? unsupported(name, warning.feature) : warning
    return { stream: readAll(stream, options.abortSignal, (warnings) => [...warnings.map(named), ...unknown]) }
  },
})

/** Returns the warning about an option of a provider that is not sent. */
const unsupported = (provider: string, option: string): SharedV4Warning => ({
  type: 'unsupported',
  feature: `${OPTIONS}${provider}.${option}`,
})

/** The beginning of the names of options in warnings. */
export const OPTIONS = 'providerOptions.'

function reasonOf({ unified, raw = '' }: LanguageModelV4FinishReason, blocked: string): LanguageModelV4FinishReason {
  if (blocked && !raw) return { unified: 'content-filter', raw: blocked }
  const meaning = unifiedReason(raw, unified)
  // For a normal stop the package's own reason is better, because it has seen the calls.
  return { unified: meaning === 'stop' ? unified : meaning, raw: raw || undefined }
}

type Finish = Extract<LanguageModelV4StreamPart, { type: 'finish' }>

/** What the raw events of a provider say, which the parts of its package lack. */
type Beside = { blocked: string; isUsageKnown: boolean }

/** Reads a raw event. Returns the usage so far if it has one. Throws the failure that it reports. */
function readRaw(raw: unknown, beside: Beside) {
  const failure = failureIn(raw)
  if (failure) throw failure
  if (isUnknownUsage(raw)) beside.isUsageKnown = false
  // Google reports a blocked prompt only in this field.
  beside.blocked ||= asText(asObject(asObject(raw).promptFeedback).blockReason)
  return interimUsage(raw)
}

/** Returns the final part, corrected where the provider package is wrong or incomplete. */
function finished(part: Finish, { blocked, isUsageKnown }: Beside): Finish {
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

/** Reads a provider's stream, which may ignore the signal. */
async function* readAll(
  stream: ReadableStream<LanguageModelV4StreamPart>,
  signal: AbortSignal | undefined,
  warningsOf: (given: SharedV4Warning[]) => SharedV4Warning[],
): AsyncGenerator<Part[]> {
  const reader = stream.getReader()
  const beside: Beside = { blocked: '', isUsageKnown: true }
  const cancel = () => void reader.cancel(signal?.reason).catch(() => {})
  signal?.addEventListener('abort', cancel)
  try {
    for (;;) {
      const { done, value } = await reader.read()
      // A cancelled stream also ends normally.
      signal?.throwIfAborted()
      if (done) return
      const usage = value.type === 'raw' && readRaw(value.rawValue, beside)
      if (usage) yield [{ type: 'usage', usage }]
      // Calls that the provider executes itself are not calls of this service.
      if (value.type === 'tool-call' && value.providerExecuted) continue
      if (value.type === 'stream-start') yield [{ ...value, warnings: warningsOf(value.warnings) }]
      else if (value.type === 'finish') yield [finished(value, beside)]
      else yield [value.type === 'tool-call' ? { ...value, input: wholeInput(value.input) } : value]
    }
  } finally {
    signal?.removeEventListener('abort', cancel)
  }
}

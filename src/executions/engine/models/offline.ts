import { setImmediate } from 'node:timers/promises'
import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4FinishReason,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
} from '@ai-sdk/provider'
import { sampleOf } from './sample.ts'

// Maximum number of parts per turn of the event loop, so that a long message does not block it.
const PARTS_PER_TURN = 256

const finishReason: LanguageModelV4FinishReason = { unified: 'stop', raw: undefined }

// There are no tokens to count, so usage is unknown: 0 with `usageEstimated`.
const usage: LanguageModelV4Usage = {
  inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined },
}

/**
 * Returns the reply, which depends only on the prompt, `providerOptions.offline.agentName` and the schema of the
 * answer.
 */
function reply({ prompt, providerOptions, responseFormat }: LanguageModelV4CallOptions): string {
  const questions = prompt.filter((message) => message.role === 'user')
  const question = questions.at(-1)?.content.flatMap((part) => (part.type === 'text' ? part.text : []))
  const agentName = providerOptions?.offline?.agentName
  const answer = [
    `This is the offline model, speaking for ${typeof agentName === 'string' ? agentName : 'the agent'}: `,
    'it asks no provider. For real answers, name the model of a provider, or set ANTHROPIC_API_KEY, OPENAI_API_KEY, ',
    `GOOGLE_GENERATIVE_AI_API_KEY or OPENAI_BASE_URL. Turn ${questions.length}. You said: ${question?.join('\n') ?? ''}`,
  ].join('')
  return responseFormat?.type === 'json' ? JSON.stringify(sampleOf(responseFormat.schema, answer)) : answer
}

function* parts(text: string): Generator<LanguageModelV4StreamPart, undefined> {
  yield { type: 'stream-start', warnings: [] }
  yield { type: 'text-start', id: '0' }
  for (const delta of text.split(/(?<=\s)(?=\S)/)) yield { type: 'text-delta', id: '0', delta }
  yield { type: 'text-end', id: '0' }
  yield { type: 'finish', finishReason, usage }
}

/**
 * `offline/echo`, the model of an installation without a provider (contract.md section 8): in process, deterministic,
 * streamed word by word. Its stream fails with the reason of `abortSignal` at the next read after an abort.
 */
export const offlineEcho: LanguageModelV4 = {
  specificationVersion: 'v4',
  provider: 'offline',
  modelId: 'echo',
  supportedUrls: {},

  async doStream(options) {
    options.abortSignal?.throwIfAborted()
    const source = parts(reply(options))
    let count = 0
    const send = (controller: ReadableStreamDefaultController<LanguageModelV4StreamPart>) => {
      options.abortSignal?.throwIfAborted()
      const { done, value } = source.next()
      if (done) controller.close()
      else controller.enqueue(value)
    }
    const stream = new ReadableStream<LanguageModelV4StreamPart>(
      {
        pull(controller) {
          count += 1
          if (count % PARTS_PER_TURN > 0) return send(controller)
          return setImmediate().then(() => send(controller))
        },
      },
      { highWaterMark: 0 },
    )
    return { stream }
  },

  async doGenerate(options) {
    options.abortSignal?.throwIfAborted()
    return { content: [{ type: 'text', text: reply(options) }], finishReason, usage, warnings: [] }
  },
}

import type { LanguageModelV4CallOptions } from '@ai-sdk/provider'
import { createChatReader } from './chat-stream.ts'
import { splitUnopened } from './inline-reasoning.ts'
import { createKeySender } from './key-header.ts'
import { post, type Target } from './post.ts'
import type { TextModel } from './text-model.ts'

/** Firewalls refuse requests without a client's name, some gateways those without the accepted types. */
const OWN_HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'user-agent': 'Muster',
}

const NO_TOOLS: ReadonlySet<string> = new Set()

/** Builds the request body of a call, with the provider package. */
type Prepare = (options: LanguageModelV4CallOptions) => Promise<{ body: object }>

/**
 * Creates a model of an OpenAI-compatible server (`POST /chat/completions`). The provider package builds the request.
 * Its stream costs three times as much as the rest of a run (four web streams and two schemas per token). So this
 * module reads the chunks itself, and more of the deviations of servers. Errors: see {@link classifyModelError}.
 * `thinkTags`: whether thinking inside the text is read as reasoning (contract-2.md section 2.4).
 */
export function chatCompletions(
  { provider, modelId }: Pick<TextModel, 'provider' | 'modelId'>,
  { url, headers: given, dispatcher }: Target,
  prepare: Prepare,
  thinkTags: boolean,
): TextModel {
  const send = createKeySender({ ...OWN_HEADERS, ...given })
  const metadataKey = provider.split('.')[0] ?? provider
  return {
    provider,
    modelId,
    ...(thinkTags && { splitReasoning: splitUnopened }),
    async doStream(options) {
      const { body } = await prepare(options)
      const whole = { ...body, stream: true, stream_options: { include_usage: true } }
      const text = JSON.stringify(options.changeBody?.(whole) ?? whole)
      const tools = options.tools?.length ? new Set(options.tools.map(({ name }) => name)) : NO_TOOLS
      const stream = await send((headers) =>
        post(
          { url, dispatcher, headers, body: text, signal: options.abortSignal },
          createChatReader({ metadataKey, tools, thinkTags }),
        ),
      )
      return { stream }
    },
  }
}

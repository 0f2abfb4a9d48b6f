import type { AnthropicProvider } from '@ai-sdk/anthropic'
import type { GoogleProvider } from '@ai-sdk/google'
import type { OpenAIProvider } from '@ai-sdk/openai'
import type { LanguageModelV4CallOptions } from '@ai-sdk/provider'
import type { ProviderName } from '../../lib/model-name.ts'
import type { Settings } from '../../settings.ts'
import { offlineEcho } from './offline.ts'
import { type TextModel, textModel } from './text-model.ts'

type Provider = {
  readonly configured: boolean
  /** What to do to have it. */
  readonly hint: string
  /** Ids of current models, the default one first. */
  readonly models: readonly string[]
  /** Imports the package (up to 60 ms and 20 MB). */
  readonly load: () => Promise<(id: string) => TextModel>
}

/** The ids that a package's type names, without the `string & {}` that stands for all others. */
type Named<Id> = Id extends string ? (Record<never, never> extends Record<Id, 1> ? never : Id) : never

// First the one that the provider recommends for a balance of quality and price.
const CURRENT = {
  anthropic: ['claude-sonnet-5-5', 'claude-opus-5-5', 'claude-haiku-5-5', 'claude-fable-5-2'],
  openai: ['gpt-6.1-sol', 'gpt-6-astra', 'gpt-6.1-terra', 'gpt-6-luna'],
  google: ['gemini-4-argon', 'gemini-3.8-flash', 'gemini-3.5-flash-lite'],
} as const satisfies {
  anthropic: readonly Named<Parameters<AnthropicProvider['languageModel']>[0]>[]
  openai: readonly Named<Parameters<OpenAIProvider['responses']>[0]>[]
  google: readonly Named<Parameters<GoogleProvider['languageModel']>[0]>[]
}

const CURRENT_NAMES: ReadonlySet<string> = new Set(
  Object.entries(CURRENT).flatMap(([provider, ids]) => ids.map((id) => `${provider}/${id}`)),
)

/** Whether a full name is that of a provider's current model. */
export const isCurrentModel = (name: string): boolean => CURRENT_NAMES.has(name)

/**
 * The providers, the first ones first in the choice of a default, and whether the settings configure them; the offline
 * model is there only when they configure none (contract.md section 8). The packages are given every address and key:
 * what is left out, they would read from the environment.
 */
export function createProviders(settings: Settings): Readonly<Record<ProviderName, Provider>> {
  const { ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENAI_BASE_URL, GOOGLE_GENERATIVE_AI_API_KEY } = settings

  const anthropic: Provider = {
    configured: ANTHROPIC_API_KEY !== undefined,
    hint: 'set ANTHROPIC_API_KEY',
    models: CURRENT.anthropic,
    async load() {
      const { createAnthropic } = await import('@ai-sdk/anthropic')
      // Anthropic's own clients want the address without the version, the package with it: either will do.
      const baseURL = (settings.ANTHROPIC_BASE_URL ?? 'https://api.anthropic.com').replace(/(\/v1)?\/*$/, '/v1')
      const create = createAnthropic({ baseURL, apiKey: ANTHROPIC_API_KEY ?? '' })
      return (id) => textModel(create(id))
    },
  }

  const openai: Provider = {
    configured: OPENAI_API_KEY !== undefined,
    hint: 'set OPENAI_API_KEY',
    models: CURRENT.openai,
    async load() {
      const { createOpenAI } = await import('@ai-sdk/openai')
      const create = createOpenAI({ baseURL: 'https://api.openai.com/v1', apiKey: OPENAI_API_KEY ?? '' })
      return (id) => textModel(create(id))
    },
  }

  const google: Provider = {
    configured: GOOGLE_GENERATIVE_AI_API_KEY !== undefined,
    hint: 'set GOOGLE_GENERATIVE_AI_API_KEY',
    models: CURRENT.google,
    async load() {
      const { createGoogle } = await import('@ai-sdk/google')
      const create = createGoogle({ apiKey: GOOGLE_GENERATIVE_AI_API_KEY ?? '' })
      return (id) => textModel(create(id))
    },
  }

  const compatible: Provider = {
    configured: OPENAI_BASE_URL !== undefined,
    hint: 'set OPENAI_BASE_URL',
    models: [],
    async load() {
      const [{ OpenAICompatibleChatLanguageModel }, { chatCompletions }] = await Promise.all([
        import('@ai-sdk/openai-compatible'),
        import('./chat-completions.ts'),
      ])
      const url = `${(OPENAI_BASE_URL ?? '').replace(/\/+$/, '')}/chat/completions`
      const config = { provider: 'compatible.chat', url: () => url, headers: {} }
      return (id) => {
        const packaged = new OpenAICompatibleChatLanguageModel(id, config)
        const prepare = (options: LanguageModelV4CallOptions) => packaged.prepareRequest(options)
        return chatCompletions(packaged, url, OPENAI_API_KEY, prepare, settings.THINK_TAGS)
      }
    },
  }

  // Beside OPENAI_BASE_URL the key belongs to that server and must not go to OpenAI.
  const online = { anthropic, openai: compatible.configured ? compatible : openai, google, compatible }
  const offline: Provider = {
    configured: Object.values(online).every(({ configured }) => !configured),
    hint: 'it is there only while no model provider is configured',
    models: ['echo'],
    load: async () => () => textModel(offlineEcho),
  }
  return { ...online, offline }
}

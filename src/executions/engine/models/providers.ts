import type { AnthropicProvider } from '@ai-sdk/anthropic'
import type { GoogleProvider } from '@ai-sdk/google'
import type { OpenAIProvider } from '@ai-sdk/openai'
import type { LanguageModelV4CallOptions } from '@ai-sdk/provider'
import { normalizeBaseAddress, type ProviderKind, splitQuery, withPath } from '../../../lib/base-address.ts'
import type { Clock } from '../../../lib/clock.ts'
import type { Network } from '../../../lib/network.ts'
import type { Settings } from '../../../settings.ts'
import { type Catalogue, createCatalogue } from './compatible.ts'
import { offlineEcho } from './offline.ts'
import { type TextModel, textModel } from './text-model.ts'

/** Where a provider is, and what lets one in there: one record, so that a key goes to its own address only. */
export type Endpoint = {
  readonly baseUrl: string
  readonly apiKey: string | undefined
  /** Further headers, their names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Who chose the address: an organization's is under the private-network rule. */
  readonly isOperators: boolean
}

export type Provider = {
  readonly name: string
  readonly configured: boolean
  /** What to do to have it. */
  readonly hint: string
  /** The provider of OPENAI_BASE_URL, under the name that models of OpenAI's have. */
  readonly isAlias?: boolean
  /** Ids of current models, the default one first. */
  readonly models: readonly string[]
  /** The models that an OpenAI-compatible server lists; null for the other providers. */
  readonly catalogue: Catalogue | null
  /** What must not be shown of it. */
  readonly secrets: readonly string[]
  /** Imports the packages of the provider (up to 60 ms and 20 MB). */
  load(): Promise<void>
  model(id: string): Promise<TextModel>
}

/** What a provider needs of the process: the ways out (loaded at the first need) and the time. */
export type ProviderDeps = {
  network(isOperators: boolean): Promise<Network>
  clock: Clock
  /** Whether thinking inside of the text is read as reasoning (contract-2.md section 2.4). */
  thinkTags: boolean
}

/** The ids that a package's type names, without the `string & {}` that stands for all others. */
type Named<Id> = Id extends string ? (Record<never, never> extends Record<Id, 1> ? never : Id) : never

// First the one that the provider recommends for a balance of quality and price.
const CURRENT = {
  anthropic: ['claude-sonnet-5-5', 'claude-opus-5-5', 'claude-haiku-5-5', 'claude-fable-5-2'],
  openai: ['gpt-6.1-sol', 'gpt-6-astra', 'gpt-6.1-terra', 'gpt-6-luna'],
  google: ['gemini-4-argon', 'gemini-3.8-flash', 'gemini-3.5-flash-lite'],
  compatible: [],
} as const satisfies {
  anthropic: readonly Named<Parameters<AnthropicProvider['languageModel']>[0]>[]
  openai: readonly Named<Parameters<OpenAIProvider['responses']>[0]>[]
  google: readonly Named<Parameters<GoogleProvider['languageModel']>[0]>[]
  compatible: []
}

const PUBLIC_ADDRESSES: Readonly<Record<Exclude<ProviderKind, 'compatible'>, string>> = {
  anthropic: 'https://api.anthropic.com',
  openai: 'https://api.openai.com/v1',
  google: 'https://generativelanguage.googleapis.com',
}

/** The base address of a built-in provider where none is given. */
export const publicAddress = (kind: Exclude<ProviderKind, 'compatible'>): string =>
  normalizeBaseAddress(kind, PUBLIC_ADDRESSES[kind])

/** The header in which each API takes its key. */
const KEY_HEADER: Readonly<Record<ProviderKind, string>> = {
  anthropic: 'x-api-key',
  openai: 'authorization',
  google: 'x-goog-api-key',
  compatible: 'authorization',
}
const KEY_HEADERS = [...new Set([...Object.values(KEY_HEADER), 'api-key'])]

/** The headers of a request: the key in its header, unless a given header takes its place; then those given. */
function headersOf(kind: ProviderKind, { apiKey, headers }: Endpoint): Record<string, string> {
  const isReplaced = KEY_HEADERS.some((name) => headers[name] !== undefined)
  const name = KEY_HEADER[kind]
  const key =
    apiKey === undefined || isReplaced ? {} : { [name]: name === 'authorization' ? `Bearer ${apiKey}` : apiKey }
  return { ...key, ...headers }
}

const CURRENT_NAMES: ReadonlySet<string> = new Set(
  Object.entries(CURRENT).flatMap(([provider, ids]) => ids.map((id) => `${provider}/${id}`)),
)

/** Whether a full name is that of a provider's current model. */
export const isCurrentModel = (name: string): boolean => CURRENT_NAMES.has(name)

/**
 * A `fetch` for the AI SDK's packages that sends an endpoint's own headers, and the query of its base address behind the
 * path that the package appends. A redirect is not followed, so that no key reaches another address.
 */
function fetchFor(kind: ProviderKind, endpoint: Endpoint, network: Network): typeof fetch {
  const query = new URLSearchParams(splitQuery(endpoint.baseUrl)[1])
  const own = headersOf(kind, endpoint)
  return (input, init) => {
    const url = new URL(String(input))
    for (const [name, value] of query) url.searchParams.set(name, value)
    const headers = new Headers(init?.headers)
    for (const name of KEY_HEADERS) headers.delete(name)
    for (const [name, value] of Object.entries(own)) headers.set(name, value)
    return network.fetch(url.href, { ...init, headers, redirect: 'manual' })
  }
}

type Make = (id: string) => TextModel

const streams = () => import('./provider-streams.ts')

/** Makes the models of an endpoint. The packages are given every address and key: what is left out, they would read from the environment. */
async function load(name: string, kind: ProviderKind, endpoint: Endpoint, deps: ProviderDeps): Promise<Make> {
  const network = await deps.network(endpoint.isOperators)
  const [baseURL] = splitQuery(endpoint.baseUrl)
  const plainFetch = fetchFor(kind, endpoint, network)
  const fetch = kind === 'compatible' ? plainFetch : (await streams()).repairStreams(kind, plainFetch)
  const config = { baseURL, apiKey: endpoint.apiKey ?? '', fetch }
  if (kind === 'anthropic') {
    const create = (await import('@ai-sdk/anthropic')).createAnthropic(config)
    return (id) => textModel(create(id))
  }
  if (kind === 'openai') {
    const create = (await import('@ai-sdk/openai')).createOpenAI(config)
    return (id) => textModel(create(id))
  }
  if (kind === 'google') {
    const create = (await import('@ai-sdk/google')).createGoogle(config)
    return (id) => textModel(create(id))
  }
  const [{ OpenAICompatibleChatLanguageModel }, { chatCompletions }] = await Promise.all([
    import('@ai-sdk/openai-compatible'),
    import('./chat-completions.ts'),
  ])
  const target = {
    url: withPath(endpoint.baseUrl, '/chat/completions'),
    headers: headersOf(kind, endpoint),
    dispatcher: network.dispatcher,
  }
  const packageConfig = { provider: `${name}.chat`, url: () => target.url, headers: {} }
  return (id) => {
    const packaged = new OpenAICompatibleChatLanguageModel(id, packageConfig)
    const prepare = (options: LanguageModelV4CallOptions) => packaged.prepareRequest(options)
    return chatCompletions(packaged, target, prepare, deps.thinkTags)
  }
}

// A model builds schemas when it is made, which costs more than a short reply: it is kept. Callers choose the names.
const MAX_KEPT = 100

type Definition = { name: string; kind: ProviderKind; hint: string; endpoint: Endpoint | null }

/** Creates a provider; one without an endpoint is not configured. */
export function createProvider({ name, kind, hint, endpoint }: Definition, deps: ProviderDeps): Provider {
  let loading: Promise<Make> | undefined
  const kept = new Map<string, TextModel>()
  const make = () => {
    if (!endpoint) throw new Error(`${name} is not configured`)
    loading ??= load(name, kind, endpoint, deps).catch((error) => {
      loading = undefined
      throw error
    })
    return loading
  }
  return {
    name,
    configured: endpoint !== null,
    hint,
    models: CURRENT[kind],
    catalogue: kind === 'compatible' && endpoint ? createCatalogue(listingOf(kind, endpoint), deps) : null,
    secrets: endpoint ? [...(endpoint.apiKey ? [endpoint.apiKey] : []), ...Object.values(endpoint.headers)] : [],
    load: async () => void (await make()),
    async model(id) {
      const model = kept.get(id) ?? (await make())(id)
      if (kept.size >= MAX_KEPT && !kept.has(id)) kept.delete(kept.keys().next().value ?? '')
      kept.set(id, model)
      return model
    },
  }
}

/** Where an endpoint lists its models, and with which headers it is asked. */
export const listingOf = (kind: ProviderKind, endpoint: Endpoint) => ({
  url: withPath(endpoint.baseUrl, '/models'),
  headers: { ...(kind === 'anthropic' && { 'anthropic-version': '2023-06-01' }), ...headersOf(kind, endpoint) },
  isOperators: endpoint.isOperators,
})

const isThere = (headers: Readonly<Record<string, string>> | undefined) => Object.keys(headers ?? {}).length > 0

/**
 * Creates the providers that the settings configure, by name, the first ones first in the choice of a default
 * (contract.md section 8, contract-2.md section 2.9).
 */
export function createProviders(settings: Settings, deps: ProviderDeps): ReadonlyMap<string, Provider> {
  const { ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_HEADERS = {} } = settings
  const { OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_RESPONSES_BASE_URL, OPENAI_HEADERS = {} } = settings
  const { GOOGLE_GENERATIVE_AI_API_KEY, GOOGLE_BASE_URL } = settings
  const isOperators = true

  const anthropic: Definition = {
    name: 'anthropic',
    kind: 'anthropic',
    hint: 'set ANTHROPIC_API_KEY',
    endpoint:
      ANTHROPIC_API_KEY || isThere(ANTHROPIC_HEADERS)
        ? {
            baseUrl: ANTHROPIC_BASE_URL ?? publicAddress('anthropic'),
            apiKey: ANTHROPIC_API_KEY,
            headers: ANTHROPIC_HEADERS,
            isOperators,
          }
        : null,
  }
  const ofOpenAi = { apiKey: OPENAI_API_KEY, headers: OPENAI_HEADERS, isOperators }
  const openai: Definition = {
    name: 'openai',
    kind: 'openai',
    hint: 'set OPENAI_API_KEY',
    endpoint:
      OPENAI_RESPONSES_BASE_URL || OPENAI_API_KEY || isThere(OPENAI_HEADERS)
        ? { baseUrl: OPENAI_RESPONSES_BASE_URL ?? publicAddress('openai'), ...ofOpenAi }
        : null,
  }
  const google: Definition = {
    name: 'google',
    kind: 'google',
    hint: 'set GOOGLE_GENERATIVE_AI_API_KEY',
    endpoint: GOOGLE_GENERATIVE_AI_API_KEY
      ? {
          baseUrl: GOOGLE_BASE_URL ?? publicAddress('google'),
          apiKey: GOOGLE_GENERATIVE_AI_API_KEY,
          headers: {},
          isOperators,
        }
      : null,
  }
  const compatible = createProvider(
    {
      name: 'compatible',
      kind: 'compatible',
      hint: 'set OPENAI_BASE_URL',
      endpoint: OPENAI_BASE_URL ? { baseUrl: OPENAI_BASE_URL, ...ofOpenAi } : null,
    },
    deps,
  )
  // Beside OPENAI_BASE_URL alone the key belongs to that server and must not go to OpenAI.
  const isAlias = compatible.configured && !OPENAI_RESPONSES_BASE_URL
  const further = settings.COMPATIBLE_PROVIDERS.map(({ name, baseUrl, apiKey, headers }) =>
    createProvider({ name, kind: 'compatible', hint: '', endpoint: { baseUrl, apiKey, headers, isOperators } }, deps),
  )
  const all: Provider[] = [
    createProvider(anthropic, deps),
    isAlias ? { ...compatible, name: 'openai', isAlias, catalogue: null } : createProvider(openai, deps),
    createProvider(google, deps),
    compatible,
    ...further,
    offline,
  ]
  return new Map(all.map((provider) => [provider.name, provider]))
}

/** Built in, and always there for those who name it (contract-2.md section 1.5). */
const offline: Provider = {
  name: 'offline',
  configured: true,
  hint: '',
  models: ['echo'],
  catalogue: null,
  secrets: [],
  load: async () => {},
  model: async () => textModel(offlineEcho),
}

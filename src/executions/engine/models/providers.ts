import type { AnthropicProvider } from '@ai-sdk/anthropic'
import type { GoogleProvider } from '@ai-sdk/google'
import type { OpenAIProvider } from '@ai-sdk/openai'
import type { LanguageModelV4CallOptions } from '@ai-sdk/provider'
import type { Clock } from '../../../lib/clock.ts'
import { normalizeBaseAddress, type ProviderKind, splitQuery, withPath } from '../../../lib/net/base-address.ts'
import type { Network } from '../../../lib/net/network.ts'
import { onceDone } from '../../../lib/once.ts'
import type { Settings } from '../../../settings.ts'
import { type Catalogue, createCatalogue } from './catalogue.ts'
import type { TextModel } from './text-model.ts'

/** Address and authentication of a provider in one record, so that a key is sent only to its own address. */
export type Endpoint = {
  readonly baseUrl: string
  readonly apiKey: string | undefined
  /** Further headers, their names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** Whether the operator chose the address. An organization's address is subject to the private-network rule. */
  readonly isOperators: boolean
}

export type ProviderSettings = { readonly key: string; readonly address: string }

export type Provider = {
  readonly name: string
  readonly configured: boolean
  /** Advice on how to configure the provider. */
  readonly hint: string
  /** Where its key and its address are set, as a person would look for them. */
  readonly settings: ProviderSettings
  /** Set for the provider of OPENAI_BASE_URL under OpenAI's name. */
  readonly isAlias?: boolean
  /** Ids of current models, the default one first. */
  readonly models: readonly string[]
  /** Models that an OpenAI-compatible server lists; null for other providers. */
  readonly catalogue: Catalogue | null
  /** Values to redact from messages. */
  readonly secrets: readonly string[]
  /** Imports the packages of the provider (up to 60 ms and 20 MB). */
  load(): Promise<void>
  model(id: string): Promise<TextModel>
}

/** Dependencies of providers: network dispatchers, loaded on first use, and the clock. */
export type ProviderDeps = {
  network(isOperators: boolean): Promise<Network>
  clock: Clock
  /** Whether thinking inside the text is read as reasoning (contract-2.md section 2.4). */
  thinkTags: boolean
}

/** The literal ids of a package's type, without its `string & {}`. */
type Named<Id> = Id extends string ? (Record<never, never> extends Record<Id, 1> ? never : Id) : never

// The first entry is the provider's recommendation for a balance of quality and price.
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

/** Returns the default base address of a built-in provider. */
export const publicAddress = (kind: Exclude<ProviderKind, 'compatible'>): string =>
  normalizeBaseAddress(kind, PUBLIC_ADDRESSES[kind])

/** Header that carries the key in each API. */
const KEY_HEADER: Readonly<Record<ProviderKind, string>> = {
  anthropic: 'x-api-key',
  openai: 'authorization',
  google: 'x-goog-api-key',
  compatible: 'authorization',
}
const KEY_HEADERS = [...new Set([...Object.values(KEY_HEADER), 'api-key'])]

/**
 * Returns the headers of a request: the key in its header, unless a configured header replaces it, and the configured
 * headers.
 */
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

/** Returns whether a full name is a provider's current model. */
export const isCurrentModel = (name: string): boolean => CURRENT_NAMES.has(name)

/**
 * Returns a `fetch` for the AI SDK's packages that sends `own` headers of the endpoint, with its key, and moves the
 * query of its base address behind the path. Does not follow redirects, so that no key reaches another address.
 */
function fetchFor(endpoint: Endpoint, send: typeof fetch, own: Readonly<Record<string, string>>): typeof fetch {
  const query = new URLSearchParams(splitQuery(endpoint.baseUrl)[1])
  return (input, init) => {
    const url = new URL(String(input))
    for (const [name, value] of query) url.searchParams.set(name, value)
    const headers = new Headers(init?.headers)
    for (const name of KEY_HEADERS) headers.delete(name)
    for (const [name, value] of Object.entries(own)) headers.set(name, value)
    return send(url.href, { ...init, headers, redirect: 'manual' })
  }
}

type CreateModel = (id: string) => TextModel

/**
 * Creates the model factory of an endpoint. Passes every address and key explicitly, because packages read missing ones
 * from the environment.
 */
async function load(name: string, kind: ProviderKind, endpoint: Endpoint, deps: ProviderDeps): Promise<CreateModel> {
  const network = await deps.network(endpoint.isOperators)
  const [baseURL] = splitQuery(endpoint.baseUrl)
  if (kind !== 'compatible') {
    const [{ repairStreams }, { fetchEncoded }, { fetchWithKey }, { textModel }] = await Promise.all([
      import('./provider-streams.ts'),
      import('./encoded-fetch.ts'),
      import('./key-header.ts'),
      import('./text-model.ts'),
    ])
    const send = fetchEncoded(network.dispatcher)
    const fetch = fetchWithKey(headersOf(kind, endpoint), (headers) =>
      repairStreams(kind, fetchFor(endpoint, send, headers)),
    )
    const config = { baseURL, apiKey: endpoint.apiKey ?? '', fetch }
    const create =
      kind === 'anthropic'
        ? (await import('@ai-sdk/anthropic')).createAnthropic(config)
        : kind === 'openai'
          ? (await import('@ai-sdk/openai')).createOpenAI(config)
          : (await import('@ai-sdk/google')).createGoogle(config)
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
  const packageConfig = {
    provider: `${name}.chat`,
    url: () => target.url,
    headers: {},
    supportsStructuredOutputs: true,
  }
  return (id) => {
    const packaged = new OpenAICompatibleChatLanguageModel(id, packageConfig)
    const prepare = (options: LanguageModelV4CallOptions) => packaged.prepareRequest(options)
    return chatCompletions(packaged, target, prepare, deps.thinkTags)
  }
}

/**
 * Maximum number of cached models. Creating one builds schemas, which costs more than a short reply; the limit exists
 * because callers choose the names.
 */
const MAX_CACHED = 100

type Definition = Pick<Provider, 'name' | 'hint' | 'settings'> & { kind: ProviderKind; endpoint: Endpoint | null }

/** Creates a provider. Without an endpoint it is not configured. */
export function createProvider({ name, kind, hint, settings, endpoint }: Definition, deps: ProviderDeps): Provider {
  const cached = new Map<string, TextModel>()
  const loadFactory = onceDone(async () => {
    if (!endpoint) throw new Error(`${name} is not configured`)
    return load(name, kind, endpoint, deps)
  })
  return {
    name,
    configured: endpoint !== null,
    hint,
    settings,
    models: CURRENT[kind],
    catalogue: kind === 'compatible' && endpoint ? createCatalogue(listingOf(kind, endpoint), deps) : null,
    secrets: endpoint ? [...(endpoint.apiKey ? [endpoint.apiKey] : []), ...Object.values(endpoint.headers)] : [],
    load: async () => void (await loadFactory()),
    async model(id) {
      const model = cached.get(id) ?? (await loadFactory())(id)
      if (cached.size >= MAX_CACHED && !cached.has(id)) cached.delete(cached.keys().next().value ?? '')
      cached.set(id, model)
      return model
    },
  }
}

/** Returns the address and headers for listing an endpoint's models. */
export const listingOf = (kind: ProviderKind, endpoint: Endpoint) => ({
  url: withPath(endpoint.baseUrl, '/models'),
  headers: { ...(kind === 'anthropic' && { 'anthropic-version': '2023-06-01' }), ...headersOf(kind, endpoint) },
  isOperators: endpoint.isOperators,
})

const hasHeaders = (headers: Endpoint['headers']): boolean => Object.keys(headers).length > 0

/** Describes the built-in providers. One without a key or an address in the settings has no endpoint. */
function builtInDefinitions(settings: Settings): Record<ProviderKind, Definition> {
  const { ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_HEADERS = {} } = settings
  const { OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_RESPONSES_BASE_URL, OPENAI_HEADERS = {} } = settings
  const { GOOGLE_GENERATIVE_AI_API_KEY, GOOGLE_BASE_URL } = settings
  const endpointOf = (baseUrl: string, apiKey: string | undefined, headers: Endpoint['headers'] = {}): Endpoint => ({
    baseUrl,
    apiKey,
    headers,
    isOperators: true,
  })
  const isAnthropic = ANTHROPIC_API_KEY || hasHeaders(ANTHROPIC_HEADERS)
  const isOpenAi = OPENAI_RESPONSES_BASE_URL || OPENAI_API_KEY || hasHeaders(OPENAI_HEADERS)
  return {
    anthropic: {
      name: 'anthropic',
      kind: 'anthropic',
      hint: 'set ANTHROPIC_API_KEY',
      settings: { key: 'ANTHROPIC_API_KEY', address: 'ANTHROPIC_BASE_URL' },
      endpoint: isAnthropic
        ? endpointOf(ANTHROPIC_BASE_URL ?? publicAddress('anthropic'), ANTHROPIC_API_KEY, ANTHROPIC_HEADERS)
        : null,
    },
    openai: {
      name: 'openai',
      kind: 'openai',
      hint: 'set OPENAI_API_KEY',
      settings: { key: 'OPENAI_API_KEY', address: 'OPENAI_RESPONSES_BASE_URL' },
      endpoint: isOpenAi
        ? endpointOf(OPENAI_RESPONSES_BASE_URL ?? publicAddress('openai'), OPENAI_API_KEY, OPENAI_HEADERS)
        : null,
    },
    google: {
      name: 'google',
      kind: 'google',
      hint: 'set GOOGLE_GENERATIVE_AI_API_KEY',
      settings: { key: 'GOOGLE_GENERATIVE_AI_API_KEY', address: 'GOOGLE_BASE_URL' },
      endpoint: GOOGLE_GENERATIVE_AI_API_KEY
        ? endpointOf(GOOGLE_BASE_URL ?? publicAddress('google'), GOOGLE_GENERATIVE_AI_API_KEY)
        : null,
    },
    compatible: {
      name: 'compatible',
      kind: 'compatible',
      hint: 'set OPENAI_BASE_URL',
      settings: { key: 'OPENAI_API_KEY', address: 'OPENAI_BASE_URL' },
      endpoint: OPENAI_BASE_URL ? endpointOf(OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_HEADERS) : null,
    },
  }
}

/**
 * Creates the providers of the settings by name, in the order in which a default is chosen (contract.md section 8,
 * contract-2.md section 2.9).
 */
export function createProviders(settings: Settings, deps: ProviderDeps): ReadonlyMap<string, Provider> {
  const definitions = builtInDefinitions(settings)
  const compatible = createProvider(definitions.compatible, deps)
  // If only OPENAI_BASE_URL is set, the key belongs to that server and must not be sent to OpenAI.
  const isAlias = compatible.configured && !settings.OPENAI_RESPONSES_BASE_URL
  const further = settings.COMPATIBLE_PROVIDERS.map(({ name, baseUrl, apiKey, headers }) => {
    const endpoint = { baseUrl, apiKey, headers, isOperators: true }
    const place = settingsIn(name, 'COMPATIBLE_PROVIDERS')
    return createProvider({ name, kind: 'compatible', hint: '', settings: place, endpoint }, deps)
  })
  const all: Provider[] = [
    createProvider(definitions.anthropic, deps),
    isAlias ? { ...compatible, name: 'openai', isAlias, catalogue: null } : createProvider(definitions.openai, deps),
    createProvider(definitions.google, deps),
    compatible,
    ...further,
    offline,
  ]
  return new Map(all.map((provider) => [provider.name, provider]))
}

/** Names the settings of a provider among others. */
export const settingsIn = (name: string, place: string): ProviderSettings => ({
  key: `the key of ${name} in ${place}`,
  address: `the address of ${name} in ${place}`,
})

/** The offline provider is always available by name (contract-2.md section 1.5). */
const offline: Provider = {
  name: 'offline',
  configured: true,
  hint: '',
  settings: { key: '', address: '' },
  models: ['echo'],
  catalogue: null,
  secrets: [],
  load: async () => {},
  model: onceDone(async () => {
    const [{ textModel }, { offlineEcho }] = await Promise.all([import('./text-model.ts'), import('./offline.ts')])
    return textModel(offlineEcho)
  }),
}

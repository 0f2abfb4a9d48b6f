import { type Clock, systemClock } from '../../../lib/clock.ts'
import { isModelId, type ModelName, readModelName } from '../../../lib/model-name.ts'
import { createProxyFor } from '../../../lib/net/proxies.ts'
import { onceDone } from '../../../lib/once.ts'
import { raceTimeout } from '../../../lib/race-abort.ts'
import type { Settings } from '../../../settings.ts'
import { adviceFor, withAdvice } from './advice.ts'
import { type Catalogue, fetchModels, PAGE_TIMEOUT } from './catalogue.ts'
import { classifyModelError, describeModelError, isModelError, ModelError, UNEXPECTED } from './model-errors.ts'
import type { ModelFailure } from './model-failures.ts'
import { createOwnProviders, type ReadProviders } from './own-providers.ts'
import {
  createProviders,
  type Endpoint,
  listingOf,
  type Provider,
  type ProviderDeps,
  type ProviderSettings,
} from './providers.ts'
import type { TextModel } from './text-model.ts'

export type ModelInfo = { id: string; provider: string; available: boolean }

export type Models = {
  /**
   * Lists the models that an organization can use: current ones, those listed by servers, the offline one. Never
   * rejects.
   */
  list(organizationId: string): Promise<ModelInfo[]>
  /** Loads the packages of the default model's provider, which would delay the first run. */
  preload(): Promise<void>
  /** Returns the full id of the default model. Rejects with a {@link ModelError}. */
  defaultModel(organizationId: string): Promise<string>
  /**
   * Resolves a model name (null for the default model) with the providers of an organization: the one that executes and
   * pays, even if the agent belongs to another organization. Returns the model, its full id, and whether the provider
   * is the organization's own. `doStream` of the model sends one request. Rejects with a {@link ModelError} if the
   * model does not exist or its provider is not configured.
   */
  resolve(name: string | null, organizationId: string): Promise<{ id: string; model: TextModel; isOwn?: boolean }>
  /**
   * Returns the full id of the model that a run will use (null for the default model) without asking a server. Returns
   * the name as given if only a server can tell its provider. `<provider>/default` stands for the first model of a list
   * that is not loaded yet.
   */
  nameOf(name: string | null, organizationId: string): Promise<string>
  /**
   * Returns the public message for an error of `resolve`, `doStream` or its stream, see {@link describeModelError};
   * {@link UNEXPECTED} for any other error. Never log a provider's error itself, because it contains the prompt.
   */
  describeError(error: unknown, organizationId: string): string
  /**
   * Classifies an error of `resolve`, `doStream` or its stream, see {@link classifyModelError}. Returns null if the
   * error does not belong to a model. `model` is the full id of the requested model.
   */
  classifyError(error: unknown, organizationId: string, model?: string | null): ModelFailure | null
  /** Returns what a person has to do about a failure of a run's last model, or null. `model` is its full id. */
  adviceOn(error: unknown, organizationId: string, model: string | null): string | null
  /** Returns the names of the providers in the settings. */
  ofServer(): readonly string[]
  /**
   * Returns whether a name is reserved for a provider of the settings: a built-in one or one of COMPATIBLE_PROVIDERS.
   */
  isTaken(name: string): boolean
  /** Lists a provider's models to check a key before it is stored. Returns the reason if that fails, otherwise null. */
  check(kind: 'anthropic' | 'openai' | 'google' | 'compatible', endpoint: Endpoint): Promise<string | null>
  /** Drops the cached providers of these organizations, or of all for null. */
  forget(organizationIds: readonly string[] | null): void
}

/** Kinds of failures of an answer, rather than of a request. */
const OF_ANSWERS: ReadonlySet<string> = new Set(['unreadable', 'content_filter', 'broken_off'])
/** Advice for a server whose list cannot be used to choose a default. */
const ADVICE = 'Name a model, or set DEFAULT_MODEL'
/** Maximum size of the headers of an answer (bytes). Gateways add those of the providers behind them. */
const MAX_HEADERS = 128 * 1024
/** Maximum duration of a key check (ms). */
const CHECK_TIMEOUT = 10_000

type Options = {
  clock?: Clock | undefined
  /** While this returns true, no provider is asked for its list. */
  isPaused?: () => boolean
  readProviders?: ReadProviders
}

type Providers = ReadonlyMap<string, Provider>
type Found = { provider: Provider; id: string }

/**
 * Creates the models from the settings and the organizations' providers, by contract.md section 8 and contract-2.md
 * section 2.9.
 */
export function createModels(
  settings: Settings,
  { clock = systemClock, isPaused = () => false, readProviders }: Options = {},
): Models {
  const { DEFAULT_MODEL } = settings
  const deps: ProviderDeps = { clock, network: createNetworks(settings), thinkTags: settings.THINK_TAGS }
  const ofServer = createProviders(settings, deps)
  const own = createOwnProviders(ofServer, deps, readProviders)

  /** Parses a model name, and finds its model if that needs no server. */
  function read(name: string, providers: Providers) {
    const named = readModelName(name, (provider) => providers.has(provider))
    const provider = named && providers.get(named.provider)
    const compatible = providers.get('compatible')
    const lists = [...providers.values()].filter(({ catalogue }) => catalogue)
    // The first segment of a name is its provider. A name without one can be a model of OPENAI_BASE_URL.
    const isBare = !named && compatible?.configured && isModelId('compatible', name) && !name.includes('/')
    let found: Found | null = null
    if (named && provider?.configured && !(provider.isAlias && named.isNamed)) found = { provider, id: named.id }
    // If only one server can have the model, it is not asked.
    else if (isBare && lists.length === 1) found = { provider: compatible, id: name }
    return { named, provider, compatible, isBare, lists, found }
  }

  /** Finds the provider of a name, and the model's id there (contract-2.md section 2.9). */
  async function find(name: string, providers: Providers): Promise<Found> {
    const { named, provider, compatible, isBare, lists, found } = read(name, providers)
    if (found) return found
    const listed = isModelId('compatible', name) ? await findListed(name, lists) : undefined
    if (listed) return { provider: listed, id: name }
    if (named && provider?.configured) return { provider, id: named.id }
    if (isBare && compatible) return { provider: compatible, id: name }
    throw named && provider ? unavailable(named, provider) : unknown(name, providers)
  }

  /** Returns the default model without asking a server, or null if it depends on a provider's list. */
  function configuredDefault(providers: Providers): Found | null {
    for (const provider of providers.values()) {
      const [id] = provider.models
      if (provider.configured && id !== undefined && provider.name !== 'offline') return { provider, id }
    }
    return null
  }

  async function findDefault(providers: Providers, organizationId: string): Promise<Found> {
    if (DEFAULT_MODEL !== undefined) return find(DEFAULT_MODEL, providers)
    const ready = configuredDefault(providers)
    if (ready) return ready
    let problem: ModelError | null = null
    for (const provider of providers.values()) {
      const first = provider.catalogue && (await firstOf(provider, provider.catalogue, organizationId))
      if (typeof first === 'string') return { provider, id: first }
      problem ??= first
    }
    if (problem) throw problem
    return { provider: providers.get('offline') as Provider, id: 'echo' }
  }

  /** Returns the first model of a provider's list, or the reason why there is none. */
  async function firstOf(
    provider: Provider,
    catalogue: Catalogue,
    organizationId: string,
  ): Promise<string | ModelError> {
    const name = provider.name === 'compatible' ? 'server at OPENAI_BASE_URL' : `provider ${provider.name}`
    try {
      return (await catalogue.first()) ?? new ModelError(`The ${name} lists no models. ${ADVICE}`)
    } catch (error) {
      const failure = classifyModelError(error, { secrets: secretsOf(organizationId) })
      const advice = (failure.kind === 'auth' && adviceFor(failure, provider.settings)) || ADVICE
      return new ModelError(`The ${name} does not list its models (${failure.detail}). ${advice}`)
    }
  }

  const secretsOf = (organizationId: string) => [
    ...[...ofServer.values()].flatMap(({ secrets }) => secrets),
    ...own.secretsOf(organizationId),
  ]

  async function resolve(name: string | null, organizationId: string): Promise<Found> {
    const providers = await own.of(organizationId)
    return name === null ? findDefault(providers, organizationId) : find(name, providers)
  }

  /** Names the model of a run without asking a server. */
  async function nameOf(name: string | null, organizationId: string): Promise<string> {
    const providers = await own.of(organizationId)
    const given = name ?? DEFAULT_MODEL
    if (given !== undefined) {
      const { found } = read(given, providers)
      return found ? idOf(found) : given
    }
    const ready = configuredDefault(providers)
    if (ready) return idOf(ready)
    const list = [...providers.values()].find(({ catalogue }) => catalogue)
    return list ? `${list.name}/${list.catalogue?.known() ?? 'default'}` : 'offline/echo'
  }

  return {
    async defaultModel(organizationId) {
      if (isPaused()) return nameOf(null, organizationId)
      const found = await raceTimeout(resolve(null, organizationId), PAGE_TIMEOUT)
      if (!found) throw new ModelError(`No list of models within ${PAGE_TIMEOUT / 1000} s`)
      return idOf(found)
    },

    async preload() {
      const named = DEFAULT_MODEL && readModelName(DEFAULT_MODEL, (provider) => ofServer.has(provider))
      const provider = named ? ofServer.get(named.provider) : configuredDefault(ofServer)?.provider
      const first = provider ?? [...ofServer.values()].find(({ catalogue }) => catalogue)
      if (first?.configured) await first.load()
    },

    describeError: (error, organizationId) =>
      isModelError(error) ? describeModelError(error, secretsOf(organizationId)) : UNEXPECTED,

    classifyError(error, organizationId, model) {
      if (!isModelError(error)) return null
      return classifyModelError(error, { provider: model?.split('/')[0] ?? null, secrets: secretsOf(organizationId) })
    },

    adviceOn(error, organizationId, model) {
      // This service's own messages say what to do, except those about an answer.
      const isOwn = error instanceof ModelError && !OF_ANSWERS.has(error.kind)
      if (!isModelError(error) || isOwn) return null
      const provider = model === null ? undefined : own.named(organizationId, model.split('/', 1)[0] ?? '')
      return provider ? adviceFor(classifyModelError(error), provider.settings) : null
    },

    async list(organizationId) {
      const lists = [...(await own.of(organizationId)).values()].map(async ({ name, models, catalogue, configured }) =>
        (catalogue ? (isPaused() ? [] : await catalogue.list()) : models).map((id) => ({
          id: `${name}/${id}`,
          provider: name,
          available: configured,
        })),
      )
      return (await Promise.all(lists)).flat()
    },

    async resolve(name, organizationId) {
      const found = await resolve(name, organizationId)
      const isOwn = ofServer.get(found.provider.name) !== found.provider
      return { id: idOf(found), model: await found.provider.model(found.id), isOwn }
    },

    nameOf,

    ofServer: () => [...ofServer.values()].flatMap(({ name, configured }) => (configured ? name : [])),
    isTaken: (name) => ofServer.has(name),

    async check(kind, endpoint) {
      try {
        await fetchModels(listingOf(kind, endpoint), deps, CHECK_TIMEOUT)
        return null
      } catch (error) {
        const secrets = [...(endpoint.apiKey ? [endpoint.apiKey] : []), ...Object.values(endpoint.headers)]
        const failure = classifyModelError(error, { secrets })
        return withAdvice(failure.detail, adviceFor(failure, givenSettings(endpoint)))
      }
    },

    forget: own.forget,
  }
}

/** Names the settings of an endpoint that is not stored yet. */
const givenSettings = ({ baseUrl }: Endpoint): ProviderSettings => ({
  key: 'the key',
  address: /\/v\d/.test(new URL(baseUrl).pathname)
    ? 'the base address'
    : 'the base address (most servers expect /v1 at its end)',
})

const idOf = ({ provider, id }: Found) => `${provider.name}/${id}`

/** Returns the first provider that lists a model of that name. */
async function findListed(name: string, lists: readonly Provider[]): Promise<Provider | undefined> {
  const found = await Promise.all(lists.map((provider) => provider.catalogue?.has(name)))
  return lists.find((_, index) => found[index])
}

const unavailable = ({ provider, id }: ModelName, { hint }: Provider) =>
  new ModelError(`The model ${provider}/${id} is not available: ${hint}`, 'not_configured')

/** Returns the error for a name whose first segment is no provider and that no compatible provider lists. */
function unknown(name: string, providers: Providers): ModelError {
  const start = `Unknown model: ${name.slice(0, 100)}.`
  const [prefix = ''] = name.split('/', 1)
  if (!name.includes('/') || providers.has(prefix) || !isModelId('compatible', name)) {
    return new ModelError(`${start} A model is named like anthropic/claude-sonnet-5-5`, 'unknown_model')
  }
  const lists = [...providers.values()].filter(({ catalogue }) => catalogue).map((provider) => provider.name)
  const [first] = lists
  const advice = first
    ? `${lists.slice(0, 10).join(', ')} ${lists.length > 1 ? 'do' : 'does'} not list it. For a model that is not listed, put its provider in front: ${first}/${name.slice(0, 100)}`
    : 'A model is named like anthropic/claude-sonnet-5-5'
  return new ModelError(`${start} There is no provider ${prefix.slice(0, 40)} here. ${advice}`, 'unknown_model')
}

/**
 * Creates the network dispatchers for operator-chosen addresses and, guarded, for organizations' addresses; each on
 * first use.
 */
function createNetworks(settings: Settings): ProviderDeps['network'] {
  const proxyFor = createProxyFor(settings)
  const open = onceDone(async () => {
    const [{ openNetwork }, { isPublicAddress }] = await Promise.all([
      import('../../../lib/net/network.ts'),
      import('../../../lib/net/addresses.ts'),
    ])
    // The caller limits the duration by aborting.
    const options = { proxyFor, headersTimeout: 0, bodyTimeout: 0, maxHeaderSize: MAX_HEADERS }
    const guard = settings.ALLOW_PRIVATE_NETWORK ? undefined : { isAllowed: isPublicAddress }
    return { operators: openNetwork(options), others: openNetwork({ ...options, guard }) }
  })
  return async (isOperators) => (await open())[isOperators ? 'operators' : 'others']
}

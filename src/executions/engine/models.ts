import { type Clock, systemClock } from '../../lib/clock.ts'
import { type ProviderName, readModelName } from '../../lib/model-name.ts'
import type { Settings } from '../../settings.ts'
import { createCatalogue } from './compatible.ts'
import { classifyModelError, describeModelError, isModelError, ModelError, UNEXPECTED } from './model-errors.ts'
import type { ModelFailure } from './model-failures.ts'
import { createProviders } from './providers.ts'
import type { TextModel } from './text-model.ts'

export type ModelInfo = { id: string; provider: string; available: boolean }

export type Models = {
  /** Lists the models that an organization can use: current ones, those that servers list, the offline one. Never rejects. */
  list(organizationId: string): Promise<ModelInfo[]>
  /** Loads the packages of the provider that serves those who name no model: the first run would wait for them. */
  preload(): Promise<void>
  /** Returns the full id of the model of agents that name none. Rejects with a {@link ModelError}. */
  defaultModel(organizationId: string): Promise<string>
  /**
   * Resolves a model's name (null for the default model) with the providers of an organization: the one that runs and
   * pays, also where the agent is another organization's. Returns the model and its full id. Its `doStream` sends one
   * request. Rejects with a {@link ModelError} if there is no such model or its provider is not configured.
   */
  resolve(name: string | null, organizationId: string): Promise<{ id: string; model: TextModel }>
  /**
   * An error of `resolve`, `doStream` or its stream as the caller may read it, see {@link describeModelError};
   * {@link UNEXPECTED} for any other error. Do not log a provider's error itself: it holds the prompt.
   */
  describeError(error: unknown, organizationId: string): string
  /**
   * Classifies an error of `resolve`, `doStream` or its stream, see {@link classifyModelError}; null if the error is
   * not a model's. `model` is the full id of the model that was asked.
   */
  classifyError(error: unknown, organizationId: string, model?: string | null): ModelFailure | null
}

const WAY_OUT = 'Name a model, or set DEFAULT_MODEL'

// A model builds schemas when it is made, which costs more than a short reply: it is kept. Callers choose the names.
const MAX_KEPT = 100

/** The models that the settings give, by the rules of contract.md section 8. */
export function createModels(
  settings: Settings,
  clock: Clock = systemClock,
  /** While it is so, no provider is asked for its list. */
  isPaused: () => boolean = () => false,
): Models {
  const { DEFAULT_MODEL, ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENAI_BASE_URL, GOOGLE_GENERATIVE_AI_API_KEY } = settings
  const secrets = [ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_GENERATIVE_AI_API_KEY].flatMap((key) => key ?? [])
  const providers = createProviders(settings)
  const catalogue = OPENAI_BASE_URL === undefined ? undefined : createCatalogue(OPENAI_BASE_URL, OPENAI_API_KEY, clock)
  const loading = new Map<ProviderName, Promise<(id: string) => TextModel>>()
  const kept = new Map<string, TextModel>()

  function identify(name: string): { provider: ProviderName; id: string } {
    const found = readModelName(name, catalogue && 'compatible')
    if (found) return found
    throw new ModelError(
      `Unknown model: ${name.slice(0, 100)}. A model is named like anthropic/claude-sonnet-5-5`,
      'unknown_model',
    )
  }

  /** What {@link defaultModel} gives without asking anybody; null where it takes the first one of OPENAI_BASE_URL. */
  function configuredDefault(): { provider: ProviderName; id: string } | null {
    if (DEFAULT_MODEL !== undefined) return identify(DEFAULT_MODEL)
    for (const [provider, { configured, models }] of Object.entries(providers)) {
      const [id] = models
      if (configured && id !== undefined) return { provider: provider as ProviderName, id }
    }
    return null
  }

  async function defaultModel(): Promise<string> {
    const ready = configuredDefault()
    if (ready) return `${ready.provider}/${ready.id}`
    const listed = await catalogue?.first().catch((error) => {
      throw new ModelError(
        `The server at OPENAI_BASE_URL does not list its models (${describeModelError(error, secrets)}). ${WAY_OUT}`,
      )
    })
    if (listed === undefined) throw new ModelError(`The server at OPENAI_BASE_URL lists no models. ${WAY_OUT}`)
    return `compatible/${listed}`
  }

  function load(name: ProviderName): Promise<(id: string) => TextModel> {
    const known = loading.get(name) ?? providers[name].load()
    loading.set(name, known)
    return known
  }

  return {
    defaultModel: (_organizationId) => defaultModel(),
    preload: async () => void (await load(configuredDefault()?.provider ?? 'compatible')),
    classifyError: (error, _organizationId, model) =>
      isModelError(error) ? classifyModelError(error, { provider: model?.split('/')[0] ?? null, secrets }) : null,
    describeError: (error, _organizationId) => (isModelError(error) ? describeModelError(error, secrets) : UNEXPECTED),

    async list(_organizationId) {
      const listed = (isPaused() ? [] : await catalogue?.list()) ?? []
      return Object.entries(providers).flatMap(([provider, { configured, models }]) =>
        (provider === 'compatible' ? listed : models).map((id) => ({
          id: `${provider}/${id}`,
          provider,
          available: configured,
        })),
      )
    },

    async resolve(name, _organizationId) {
      const { provider, id } = identify(name ?? (await defaultModel()))
      const fullId = `${provider}/${id}`
      if (!providers[provider].configured) {
        throw new ModelError(`The model ${fullId} is not available: ${providers[provider].hint}`, 'not_configured')
      }
      const model = kept.get(fullId) ?? (await load(provider))(id)
      if (kept.size >= MAX_KEPT && !kept.has(fullId)) kept.delete(kept.keys().next().value ?? '')
      kept.set(fullId, model)
      return { id: fullId, model }
    },
  }
}

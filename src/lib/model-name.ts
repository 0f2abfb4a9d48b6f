/** The providers that every installation has. */
export const BUILT_IN = ['anthropic', 'openai', 'google', 'compatible', 'offline'] as const

export type BuiltInName = (typeof BUILT_IN)[number]

/** What the name of a further OpenAI-compatible provider is: the first segment of its models' names. */
export const PROVIDER_NAME = /^[a-z0-9][a-z0-9._-]{0,39}$/

const ANY_ID = /^[^\x00-\x1f\x7f]{1,200}$/

const VALID_IDS: Readonly<Record<string, RegExp>> = {
  // The id becomes part of a path.
  google: /^(?!.*\.\.)[\w./-]{1,200}$/,
  offline: /^echo$/,
}

const TOLD_BY_NAME: readonly (readonly [RegExp, BuiltInName])[] = [
  [/^claude-/, 'anthropic'],
  [/^(gpt-|chatgpt-|o\d)/, 'openai'],
  [/^gemini-/, 'google'],
]

/** A model's provider and its id there. `isNamed`: the provider was the first segment of the name. */
export type ModelName = { provider: string; id: string; isNamed: boolean }

/** Whether a provider may have a model of that id. */
export const isModelId = (provider: string, id: string): boolean => (VALID_IDS[provider] ?? ANY_ID).test(id)

/**
 * Reads the provider and the id of a model's name (contract.md section 8, contract-2.md section 2.9): the first segment
 * if it is a provider that `knows` knows (`compatible:<name>/…` means `<name>/…`), else what the shape of a bare id
 * tells. Returns null if the name tells no provider or can be no id of it.
 */
export function readModelName(name: string, knows: (provider: string) => boolean): ModelName | null {
  const slash = name.indexOf('/')
  const prefix = name.slice(0, Math.max(0, slash)).replace(/^compatible:/, '')
  const isNamed = slash > 0 && knows(prefix)
  const provider = isNamed ? prefix : TOLD_BY_NAME.find(([pattern]) => pattern.test(name))?.[1]
  const id = isNamed ? name.slice(slash + 1) : name
  return provider !== undefined && isModelId(provider, id) ? { provider, id, isNamed } : null
}

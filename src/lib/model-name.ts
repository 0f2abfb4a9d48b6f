/** Providers of every installation. */
export const BUILT_IN = ['anthropic', 'openai', 'google', 'compatible', 'offline'] as const

export type BuiltInName = (typeof BUILT_IN)[number]

/** Name of a further OpenAI-compatible provider, which is the first segment of its models' names. */
export const PROVIDER_NAME = /^[a-z0-9][a-z0-9._-]{0,39}$/

const ANY_ID = /^[^\x00-\x1f\x7f]{1,200}$/

const VALID_IDS: Readonly<Record<string, RegExp>> = {
  // The id becomes part of a path.
  google: /^(?!.*\.\.)[\w./-]{1,200}$/,
  offline: /^echo$/,
}

const PATTERNS: readonly (readonly [RegExp, BuiltInName])[] = [
  [/^claude-/, 'anthropic'],
  [/^(gpt-|chatgpt-|o\d)/, 'openai'],
  [/^gemini-/, 'google'],
]

/** A model's provider and its id there. `isNamed`: whether the name starts with the provider. */
export type ModelName = { provider: string; id: string; isNamed: boolean }

/** Returns whether a provider may have a model with that id. */
export const isModelId = (provider: string, id: string): boolean => (VALID_IDS[provider] ?? ANY_ID).test(id)

/**
 * Parses a model's name (contract.md section 8, contract-2.md section 2.9). The first segment is the provider if
 * `isProvider` accepts it (`compatible:<name>/…` means `<name>/…`); otherwise the shape of a bare id decides. Returns
 * null if the provider is undetermined or the id is invalid for it.
 */
export function readModelName(name: string, isProvider: (provider: string) => boolean): ModelName | null {
  const slash = name.indexOf('/')
  const prefix = name.slice(0, Math.max(0, slash)).replace(/^compatible:/, '')
  const isNamed = slash > 0 && isProvider(prefix)
  const provider = isNamed ? prefix : PATTERNS.find(([pattern]) => pattern.test(name))?.[1]
  const id = isNamed ? name.slice(slash + 1) : name
  return provider !== undefined && isModelId(provider, id) ? { provider, id, isNamed } : null
}

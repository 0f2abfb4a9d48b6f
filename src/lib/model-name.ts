export type ProviderName = 'anthropic' | 'openai' | 'google' | 'compatible' | 'offline'

const ANY_ID = /^[^\x00-\x1f\x7f]{1,200}$/

const VALID_IDS: Readonly<Record<ProviderName, RegExp>> = {
  anthropic: ANY_ID,
  openai: ANY_ID,
  // The id becomes part of a path.
  google: /^(?!.*\.\.)[\w./-]{1,200}$/,
  compatible: ANY_ID,
  offline: /^echo$/,
}

const TOLD_BY_NAME: readonly (readonly [RegExp, ProviderName])[] = [
  [/^claude-/, 'anthropic'],
  [/^(gpt-|chatgpt-|o\d)/, 'openai'],
  [/^gemini-/, 'google'],
]

/**
 * The provider and the id that a model's name tells: `anthropic/…`, or a bare id (contract.md section 8). `otherwise`
 * has the bare ids that tell no provider. Null where there can be no such model.
 */
export function readModelName(
  name: string,
  otherwise: ProviderName | undefined,
): { provider: ProviderName; id: string } | null {
  const prefix = name.slice(0, Math.max(0, name.indexOf('/')))
  const told = TOLD_BY_NAME.find(([pattern]) => pattern.test(name))?.[1] ?? otherwise
  const provider = Object.hasOwn(VALID_IDS, prefix) ? (prefix as ProviderName) : told
  const id = provider === prefix ? name.slice(prefix.length + 1) : name
  return provider && VALID_IDS[provider].test(id) ? { provider, id } : null
}

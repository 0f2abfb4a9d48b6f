/** The resources that a token can be limited to (contract.md section 2). */
const RESOURCES = [
  'agents',
  'tasks',
  'executions',
  'spaces',
  'chats',
  'secrets',
  'missions',
  'skills',
  'mcps',
  'keys',
  'media',
  'profile',
  'usage',
  'approvals',
  'organization',
  'members',
  'audit',
  'webhooks',
  'providers',
  'budgets',
] as const

/** `agents:execute` covers executing, cancelling and following the user's own runs. */
export type Scope = `${(typeof RESOURCES)[number]}:${'read' | 'write'}` | 'agents:execute'

export const SCOPES: ReadonlySet<string> = new Set([
  '*',
  'agents:execute',
  ...RESOURCES.flatMap((resource) => [`${resource}:read`, `${resource}:write`]),
])

/** Advice on a text that is no scope. */
export const SCOPE_ADVICE = `<resource> is one of: ${RESOURCES.join(', ')}`

/** Returns whether a text names a scope, or all of them. */
export const isScope = (scope: string): scope is Scope | '*' => SCOPES.has(scope)

/** Returns whether the given scopes include the needed one. A `write` includes its `read`. */
export const covers = (given: readonly string[], needed: Scope): boolean =>
  given.includes('*') || given.includes(needed) || given.includes(needed.replace(/:read$/, ':write'))

/** Returns the common scopes of two lists: the part of another user's authority that a caller may pass on. */
export function intersect(ours: readonly string[], theirs: readonly string[]): readonly string[] {
  if (ours.includes('*')) return theirs
  if (theirs.includes('*')) return ours
  const within = (some: readonly string[], others: readonly string[]) =>
    some.filter((scope) => covers(others, scope as Scope))
  return [...new Set([...within(ours, theirs), ...within(theirs, ours)])]
}

/** Encodes scopes for the row of a run or a mission: separated by spaces, null for all. */
export const toColumn = (scopes: readonly string[]): string | null => (scopes.includes('*') ? null : scopes.join(' '))

/** Decodes the scopes that {@link toColumn} encoded. */
export const fromColumn = (column: string | null): readonly string[] => column?.split(' ') ?? ['*']

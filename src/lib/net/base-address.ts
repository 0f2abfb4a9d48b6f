/** APIs whose base addresses are written in several ways. */
export type ProviderKind = 'anthropic' | 'openai' | 'google' | 'compatible'

/** Request paths of each API that a pasted base address may end with. OpenAI's two APIs have the same base. */
const REQUEST_PATHS: Readonly<Record<ProviderKind, RegExp>> = {
  anthropic: /\/(messages|models)$/,
  openai: /\/(chat\/completions|completions|responses|models)$/,
  google: /\/models(\/[^/]+)?$/,
  compatible: /\/(chat\/completions|completions|responses|models)$/,
}

/** A version at the end of a path. */
const VERSION = /\/v\d+((alpha|beta)\d*)?$/

/**
 * Normalizes a pasted base address: removes blanks, trailing slashes and a request path. Anthropic's and Google's own
 * clients expect it without the version, the AI SDK with it; both are accepted. For OpenAI's APIs the version stays as
 * given, because servers differ. The query is preserved, see {@link withPath}.
 */
export function normalizeBaseAddress(kind: ProviderKind, text: string): string {
  const url = new URL(text.trim())
  let path = url.pathname.replace(/\/+$/, '')
  path = path.replace(REQUEST_PATHS[kind], '').replace(/\/+$/, '')
  if (kind === 'anthropic' && !VERSION.test(path)) path += '/v1'
  // Vertex AI paths have more segments after their version.
  if (kind === 'google' && !VERSION.test(path) && !path.endsWith('/publishers/google')) path += '/v1beta'
  return `${url.origin}${path}${url.search}`
}

/** Appends a path to a base address, before its query: `?api-version=…` comes after the whole path. */
export function withPath(base: string, path: string): string {
  const [address, query] = splitQuery(base)
  return address.replace(/\/+$/, '') + path + query
}

/** Splits an address into what comes before its query, and the query with its question mark, empty if there is none. */
export function splitQuery(address: string): [address: string, query: string] {
  const at = address.indexOf('?')
  return at < 0 ? [address, ''] : [address.slice(0, at), address.slice(at)]
}

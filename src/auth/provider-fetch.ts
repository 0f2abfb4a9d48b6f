import { openNetwork } from '../lib/net/network.ts'
import { createProxyFor, type ProxySettings } from '../lib/net/proxies.ts'
import { bounded } from '../lib/net/safe-fetch.ts'

/** Maximum size of an answer of a provider after decompression (bytes). */
const MAX_ANSWER = 1024 * 1024

/** Opens a `fetch` for the operator's identity provider or authorization server, whose answers are limited in size. */
export function openProviderFetch(settings: ProxySettings): typeof fetch {
  const network = openNetwork({ proxyFor: createProxyFor(settings) })
  return async (...request) => bounded(await network.fetch(...request), { maxResponse: MAX_ANSWER })
}

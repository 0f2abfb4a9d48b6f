import { BlockList, isIP } from 'node:net'

/** The settings that select proxies for outgoing connections. */
export type ProxySettings = {
  HTTP_PROXY?: string | undefined
  HTTPS_PROXY?: string | undefined
  NO_PROXY?: string | undefined
}

/** Returns the address of the proxy for a URL, null for a direct connection. */
export type ProxyFor = (url: URL | string) => string | null

type Exception = { matches: (host: string) => boolean; port: string }

/**
 * Creates the rule that selects the proxy of every outgoing connection: HTTPS_PROXY for `https:`, HTTP_PROXY for
 * `http:`, none for hosts in NO_PROXY. An entry of NO_PROXY is a host (with its subdomains, with or without a leading
 * dot), `*.host` (subdomains only), an IP address, a network (`10.0.0.0/8`) or `*`, each with or without a port.
 */
export function createProxyFor({ HTTP_PROXY, HTTPS_PROXY, NO_PROXY = '' }: ProxySettings): ProxyFor {
  if (!HTTP_PROXY && !HTTPS_PROXY) return () => null
  const exceptions = NO_PROXY.split(/[,\s]+/)
    .filter(Boolean)
    .map(readException)
  return (url) => {
    const { protocol, hostname, port } = new URL(url)
    const proxy = protocol === 'https:' ? HTTPS_PROXY : HTTP_PROXY
    if (!proxy) return null
    const host = hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '')
    const actual = port || (protocol === 'https:' ? '443' : '80')
    const isDirect = exceptions.some((entry) => (!entry.port || entry.port === actual) && entry.matches(host))
    return isDirect ? null : proxy
  }
}

function readException(entry: string): Exception {
  const [, bracketed, name, given = ''] = /^(?:\[(.+)\]|([^:]+))(?::(\d+))?$/.exec(entry) ?? []
  const host = (bracketed ?? name ?? entry).toLowerCase().replace(/\.$/, '')
  return { matches: matcherOf(host), port: given }
}

function matcherOf(entry: string): Exception['matches'] {
  if (entry === '*') return () => true
  const [network = '', prefix] = entry.split('/')
  const version = isIP(network)
  if (version && prefix !== undefined && /^\d{1,3}$/.test(prefix) && Number(prefix) <= (version === 4 ? 32 : 128)) {
    const list = new BlockList()
    list.addSubnet(network, Number(prefix), version === 4 ? 'ipv4' : 'ipv6')
    return (host) => isIP(host) !== 0 && list.check(host, isIP(host) === 4 ? 'ipv4' : 'ipv6')
  }
  const suffix = entry.replace(/^\*?\./, '')
  const withApex = !entry.startsWith('*')
  return (host) => (withApex && host === suffix) || host.endsWith(`.${suffix}`)
}

/**
 * Returns the variables that make Node's own HTTP agents (`proxyEnv`) and child processes use the proxy of one URL:
 * nothing for a direct connection.
 */
export function proxyVariables(proxyFor: ProxyFor, url: URL | string): { HTTP_PROXY?: string; HTTPS_PROXY?: string } {
  const proxy = proxyFor(url)
  return proxy ? { HTTP_PROXY: proxy, HTTPS_PROXY: proxy } : {}
}

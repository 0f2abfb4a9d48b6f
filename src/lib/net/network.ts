import { lookup as systemLookup } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import { Agent, buildConnector, type Dispatcher, Dispatcher1Wrapper, Pool, ProxyAgent } from 'undici'
import { CERTIFICATE } from './certificate.ts'
import type { ProxyFor } from './proxies.ts'
import { skipContinue } from './skip-continue.ts'

const CONNECT_TIMEOUT = 10_000

/** Thrown if a connection is forbidden because of its target address. */
export class ForbiddenAddress extends Error {
  override name = 'ForbiddenAddress'
  override message = 'The address is not allowed'
}

/** Thrown if a proxy does not connect to the server. The message names the proxy. */
export class ProxyFailed extends Error {
  override name = 'ProxyFailed'
}

/** Restricts connections to allowed IP addresses. */
export type Guard = {
  /** Returns whether connections to an IP address are allowed. */
  isAllowed: (address: string) => boolean
  /** Resolves names. Default: the system resolver. */
  lookup?: LookupFunction | undefined
}

type Options = Omit<Agent.Options, 'connect' | 'factory' | 'allowH2'> & {
  proxyFor: ProxyFor
  guard?: Guard | undefined
  /** Whether to use HTTP/2 with servers that choose it. Default: true. */
  allowH2?: boolean
}

/** An outgoing network path. */
export type Network = {
  dispatcher: Dispatcher
  /** Sends a request with Node's own `fetch` over this network. Does not follow redirects. */
  fetch: typeof fetch
  /** Closes every connection, including those in use. */
  close(): Promise<void>
}

/**
 * Opens a network path, direct or through the proxy that `proxyFor` selects. With a `guard` it connects only to allowed
 * IP addresses, and to exactly the checked one. A proxy receives the checked address instead of the name (which stays
 * in TLS and in `Host`), so that it does not resolve anything itself.
 */
export function openNetwork({ proxyFor, guard, ...options }: Options): Network {
  const { allowH2 = true } = options
  const connect = guard ? guardedConnector(guard, allowH2) : connector({ allowH2 })
  const direct = new Agent({ ...options, connect: explained(connect) })
  const proxies = new Map<string, ProxyAgent>()

  function through(proxy: string): ProxyAgent {
    const known = proxies.get(proxy)
    if (known) return known
    const made = new ProxyAgent({
      ...options,
      uri: proxy,
      connectTimeout: CONNECT_TIMEOUT,
      factory: (origin, given) => proxied(proxy, origin, given as Pool.Options),
      ...(guard && {
        proxyTunnel: true,
        clientFactory: (origin, given) => pinned(new Pool(origin, given as Pool.Options), guard),
      }),
    })
    proxies.set(proxy, made)
    return made
  }

  const dispatcher = direct.compose(() => (request, handler) => {
    const proxy = proxyFor(String(request.origin))
    return (proxy ? through(proxy) : direct).dispatch(request, handler)
  })
  const forFetch = new Dispatcher1Wrapper(dispatcher)
  return {
    dispatcher,
    fetch: (input, init) => fetch(input, { redirect: 'manual', ...init, dispatcher: forFetch } as RequestInit),
    close: async () => void (await Promise.all([direct, ...proxies.values()].map((agent) => agent.destroy()))),
  }
}

const connector = (options: Partial<buildConnector.BuildOptions>) =>
  buildConnector({ timeout: CONNECT_TIMEOUT, ...options })

function guardedConnector(
  { isAllowed, lookup = systemLookup as LookupFunction }: Guard,
  allowH2: boolean,
): buildConnector.connector {
  const connect = connector({ allowH2, lookup: onlyAllowed(lookup, isAllowed) })
  return (target, callback) => {
    const host = unbracketed(target.hostname)
    // A numeric address is not looked up.
    if (!isIP(host) || isAllowed(host)) connect(target, callback)
    else callback(new ForbiddenAddress(), null)
  }
}

const unbracketed = (host: string) => host.replace(/^\[(.*)\]$/, '$1')

/** Resolves a name for a connection. Fails unless all of its addresses are allowed. */
const onlyAllowed =
  (lookup: LookupFunction, isAllowed: (address: string) => boolean): LookupFunction =>
  (hostname, options, callback) =>
    lookup(hostname, options, (error, found, family) => {
      const addresses = typeof found === 'string' ? [found] : (found ?? []).map(({ address }) => address)
      callback(error ?? (addresses.every(isAllowed) ? null : new ForbiddenAddress()), found, family)
    })

/** Makes a proxy client request tunnels to checked IP addresses instead of names. */
function pinned(pool: Pool, { isAllowed, lookup = systemLookup as LookupFunction }: Guard): Pool {
  const tunnel = pool.connect.bind(pool) as (options: Dispatcher.ConnectOptions) => Promise<Dispatcher.ConnectData>
  const connect = async (options: Dispatcher.ConnectOptions) => {
    const { hostname, port } = new URL(`tunnel://${options.path}`)
    const address = await resolve(unbracketed(hostname), onlyAllowed(lookup, isAllowed), isAllowed)
    const path = `${isIP(address) === 6 ? `[${address}]` : address}:${port}`
    return tunnel({ ...options, path, headers: { ...(options.headers as object), host: path } })
  }
  return Object.assign(pool, { connect })
}

function resolve(host: string, lookup: LookupFunction, isAllowed: Guard['isAllowed']): Promise<string> {
  if (isIP(host)) return isAllowed(host) ? Promise.resolve(host) : Promise.reject(new ForbiddenAddress())
  return new Promise((fulfil, reject) => {
    lookup(host, { all: true }, (error, found) => {
      const [first] = typeof found === 'string' ? [{ address: found }] : (found ?? [])
      if (error || !first) reject(error ?? new Error(`${host} has no address`))
      else fulfil(first.address)
    })
  })
}

/** Creates a pool of connections through a proxy, with errors that name the proxy. */
function proxied(proxy: string, origin: string | URL, options: Pool.Options): Pool {
  const connect = options.connect as buildConnector.connector
  const name = new URL(proxy).host
  return new Pool(origin, {
    ...options,
    connect: explained((target, callback) =>
      connect(target, (...[error, socket]) => {
        if (!error) callback(null, socket as NonNullable<typeof socket>)
        else callback(isOfProxy(error) ? viaProxy(name, error) : error, null)
      }),
    ),
  })
}

const isOfProxy = (error: Error) => !(error instanceof ForbiddenAddress) && !isCertificates(error)

function viaProxy(name: string, cause: Error): Error {
  const status = /Proxy response \((\d+)\)/.exec(cause.message)?.[1]
  const reason = status
    ? `it answered with the status ${status}`
    : cause.message || (cause as NodeJS.ErrnoException).code
  return new ProxyFailed(`The proxy ${name} did not connect: ${reason}`, { cause })
}

const isCertificates = (error: Error) => CERTIFICATE.test((error as NodeJS.ErrnoException).code ?? '')

/** Creates a connector with helpful certificate errors and sockets that skip `100 Continue`. */
const explained =
  (connect: buildConnector.connector): buildConnector.connector =>
  (target, callback) =>
    connect(target, (...[error, socket]) => {
      if (!error) return callback(null, skipContinue(socket as NonNullable<typeof socket>))
      if (!isCertificates(error)) return callback(error, null)
      const { code } = error as NodeJS.ErrnoException
      const [reason] = error.message.split(';')
      const explanation = `The certificate of ${target.hostname} is not trusted: ${reason} (${code}). For a certificate authority of your own, set NODE_EXTRA_CA_CERTS`
      callback(Object.assign(new Error(explanation), { code, cause: undefined }), null)
    })

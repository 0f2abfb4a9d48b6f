import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import { badRequest, misdirected } from '../errors.ts'
import type { Settings } from '../settings.ts'

/** Throws 421 for a request whose `Host` is not one of the service's names, and 400 for an invalid host. */
type CheckHost = (req: IncomingMessage) => void

/** A name or an address, and a port: parts of a URL besides them could hide another name. */
const NAME = /^[^\s/?#@\\]+$/

/** Returns a host's name in lower case, without its port. */
const nameOf = (host: string): string =>
  host
    .replace(/:\d*$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '')
    .toLowerCase()

/** Returns an address to listen on in its shortest form: ::1 for 0:0:0:0:0:0:0:1, and 127.0.0.1 for 127.1. */
const canonicalOf = (host: string): string =>
  nameOf(URL.parse(`http://${host.includes(':') ? `[${host}]` : host}`)?.hostname ?? host)

const isLoopback = (name: string): boolean =>
  name === 'localhost' ||
  name.endsWith('.localhost') ||
  name === '::1' ||
  name.startsWith('::ffff:7f') ||
  (isIP(name) === 4 && name.startsWith('127.'))

/**
 * Creates the check that prevents DNS rebinding (contract-2.md section 8.8). `ALLOWED_HOSTS` lists the hosts; its
 * default is loopback, IP addresses and the host of `PUBLIC_URL`. Without `PUBLIC_URL`, a server that listens beyond
 * loopback allows every host: `isOpen` is true, and the operator should be warned.
 */
export function createHostCheck({ ALLOWED_HOSTS, PUBLIC_URL, HOST }: Settings): { check: CheckHost; isOpen: boolean } {
  const names = new Set([...ALLOWED_HOSTS, ...(PUBLIC_URL ? [new URL(PUBLIC_URL).hostname] : [])].map(nameOf))
  const isOpen = ALLOWED_HOSTS.includes('*') || (!names.size && !isLoopback(canonicalOf(HOST)))
  const isDefault = !ALLOWED_HOSTS.length
  // Clients mostly send the same host.
  let latest: string | undefined
  return {
    isOpen: isOpen && isDefault,
    check({ headers: { host } }) {
      if (host === latest || host === undefined) return
      if (!NAME.test(host) || !URL.canParse(`http://${host}`))
        throw badRequest('Invalid Host header', { detail: 'Send the host and port of the address as the header Host.' })
      const name = nameOf(host)
      if (!isOpen && !names.has(name) && !(isDefault && (isLoopback(name) || isIP(name)))) throw misdirected()
      latest = host
    },
  }
}

import { lookup } from 'node:dns/promises'
import { BlockList, isIP } from 'node:net'

/** What is not on the internet, of the addresses that look as if they were (IANA's special-purpose registries). */
const SPECIAL = new BlockList()
for (const [network, prefix] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
] as const) {
  SPECIAL.addSubnet(network, prefix, 'ipv4')
}
// Protocol assignments, Teredo among them; documentation; 6to4, which carries any IPv4 address; documentation again.
for (const [network, prefix] of [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const) {
  SPECIAL.addSubnet(network, prefix, 'ipv6')
}

/** All of the internet's IPv6 addresses lie here. */
const GLOBAL = new BlockList()
GLOBAL.addSubnet('2000::', 3, 'ipv6')

/** Whether an IP address is one of the internet: no loopback, link-local, private, multicast or reserved one. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 4) return !SPECIAL.check(address, 'ipv4')
  return isIP(address) === 6 && GLOBAL.check(address, 'ipv6') && !SPECIAL.check(address, 'ipv6')
}

/**
 * The addresses of a URL's host, to connect to and to no other: asked again, the name may have others. Null when there
 * are none, or when one is not public and `allowPrivate` is not set (contract.md section 7).
 */
export async function addressesOf({ hostname }: URL, allowPrivate: boolean): Promise<string[] | null> {
  const host = hostname.replace(/^\[(.*)\]$/, '$1')
  const found = isIP(host) ? [{ address: host }] : await lookup(host, { all: true }).catch(() => [])
  const addresses = found.map(({ address }) => address)
  if (!addresses.length) return null
  return allowPrivate || addresses.every(isPublicAddress) ? addresses : null
}

import { lookup } from 'node:dns/promises'
import { BlockList, isIP } from 'node:net'

/**
 * Addresses that look global but are reserved (IANA's special-purpose registries), or lead to the host of a virtual
 * machine: Azure's WireServer, which gives out secrets of the machine.
 */
const SPECIAL = new BlockList()
for (const [network, prefix] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['168.63.129.16', 32],
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
// Protocol assignments, including Teredo; documentation; 6to4, which embeds any IPv4 address; documentation again.
for (const [network, prefix] of [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const) {
  SPECIAL.addSubnet(network, prefix, 'ipv6')
}

/** The range of global IPv6 addresses. */
const GLOBAL = new BlockList()
GLOBAL.addSubnet('2000::', 3, 'ipv6')

/** Returns whether an IP address is global: not loopback, link-local, private, multicast or reserved. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 4) return !SPECIAL.check(address, 'ipv4')
  return isIP(address) === 6 && GLOBAL.check(address, 'ipv6') && !SPECIAL.check(address, 'ipv6')
}

/**
 * Resolves a URL's host once, to connect to exactly these addresses, because a second lookup may differ. Returns null
 * if there are none, or if one is not public and `allowPrivate` is not set (contract.md section 7).
 */
export async function addressesOf({ hostname }: URL, allowPrivate: boolean): Promise<string[] | null> {
  const host = hostname.replace(/^\[(.*)\]$/, '$1')
  const found = isIP(host) ? [{ address: host }] : await lookup(host, { all: true }).catch(() => [])
  const addresses = found.map(({ address }) => address)
  if (!addresses.length) return null
  return allowPrivate || addresses.every(isPublicAddress) ? addresses : null
}

const PARTS = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*)(.*)$/s

/**
 * Returns an address for each host of a PostgreSQL URL, which may list several (`postgresql://user@a:5432,b:5432/db`),
 * without `target_session_attrs`, which the driver does not know. Adds the default host to a user without one, as in
 * `postgresql://user:password@/db?host=/cloudsql/…`, because it is no URL otherwise.
 */
export function splitHosts(url: string): string[] {
  const [, before = '', hosts = '', after = ''] = PARTS.exec(url) ?? []
  if (!hosts) return [withoutTarget(before.endsWith('@') ? `${before}localhost${after}` : url)]
  return hosts.split(',').map((host) => withoutTarget(before + host + after))
}

const TARGET = /([?&])target_session_attrs=([^&#]*)&?/

const withoutTarget = (url: string): string => url.replace(TARGET, '$1').replace(/[?&]$/, '')

/** Returns the wanted kind of server (libpq's `target_session_attrs`), if the URL names one. */
export const targetOf = (url: string): string | undefined => TARGET.exec(url)?.[2]

/** Returns the hosts of a PostgreSQL URL for messages, without credentials. */
export const hostsOf = (url: string): string =>
  splitHosts(url)
    .map((each) => new URL(each))
    .map(({ host, searchParams }) => searchParams.get('host') ?? host)
    .join(',')

/** Returns whether only a server that accepts writes is to be used: of several hosts, or if the URL says so. */
export const choosesHost = (url: string): boolean => splitHosts(url).length > 1 || targetOf(url) !== undefined

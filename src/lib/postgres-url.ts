const PARTS = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*)(.*)$/s

/**
 * Returns an address for each host of a PostgreSQL URL, which may list several (`postgresql://user@a:5432,b:5432/db`,
 * or `?host=a,b&port=5432,5433`), without `target_session_attrs`, which the driver does not know. Adds the default host
 * to a user without one, as in `postgresql://user:password@/db?host=/cloudsql/…`, because it is no URL otherwise.
 */
export function splitHosts(url: string): string[] {
  const [, before = '', hosts = '', after = ''] = PARTS.exec(url) ?? []
  if (!before) return [withoutTarget(url)]
  const written = hosts || !before.endsWith('@') ? hosts.split(',') : ['localhost']
  const [named, ports] = [listOf(after, 'host'), listOf(after, 'port')]
  return (named ?? written).map((host, index) => {
    const options = ports ? withValue(after, 'port', ports[index] ?? ports[0]!) : after
    // As in libpq, the option wins over the host before the path.
    return withoutTarget(named ? before + written[0] + withValue(options, 'host', host) : before + host + options)
  })
}

const optionOf = (name: string) => new RegExp(`([?&]${name}=)([^&#]*)`)

/** Returns the values of an option that is a list, still encoded. */
const listOf = (options: string, name: string) => optionOf(name).exec(options)?.[2]?.split(/,|%2c/i)

const withValue = (options: string, name: string, value: string): string =>
  options.replace(optionOf(name), (_, before: string) => before + value)

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

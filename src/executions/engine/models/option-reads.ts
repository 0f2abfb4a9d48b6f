import { type Fields, isObject } from '../../../lib/unknown.ts'

/** Options for a provider package that note which of them it reads. */
type Watched = { options: Fields; unread(): string[] }

/**
 * Watches which options a provider package reads. It leaves out those that it does not know without a warning, such as
 * `reasoning_effort` in the spelling of the API.
 */
export function watchOptions(given: Fields): Watched {
  const unread = new Set<string>()
  const options = watched(given, '', unread)
  const isInside = (path: string) => path.includes('.') && unread.has(path.replace(/\.[^.]*$/, ''))
  return { options, unread: () => [...unread].filter((path) => !isInside(path)) }
}

function watched(given: Fields, path: string, unread: Set<string>): Fields {
  const entries = Object.entries(given).map(([name, value]) => {
    unread.add(path + name)
    return [name, isObject(value) ? watched(value, `${path}${name}.`, unread) : value]
  })
  return new Proxy(Object.fromEntries(entries), {
    get(options, name) {
      if (typeof name === 'string') unread.delete(path + name)
      return Reflect.get(options, name)
    },
  })
}

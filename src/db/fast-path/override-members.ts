/**
 * A client, or a model of it, with some members replaced: by `methods`, and by what `model` makes of a name when it is
 * first asked for. The client is made only when another of its members is asked for. The proxy's target is an empty
 * object: Prisma's objects are proxies themselves, and would be asked at each look whether the member may change.
 */
export function overrideMembers<T extends object>(
  client: () => T,
  methods: Record<string, unknown>,
  model: (name: string) => unknown = () => undefined,
): T {
  const own = (name: string): unknown => (methods[name] ??= model(name))
  return new Proxy({} as T, {
    get(_, name) {
      // Whoever awaits it, or a promise of it, asks whether it is a promise.
      if (typeof name !== 'string' || name === 'then') return undefined
      return own(name) ?? Reflect.get(client(), name)
    },
    has: (_, name) => (typeof name === 'string' && own(name) !== undefined) || Reflect.has(client(), name),
    set: (_, name, value) => Reflect.set(methods, name, value),
  })
}

/**
 * Returns a client or model with some members replaced: by `methods`, and by the result of `model` for a name when it
 * is first read. The original is created only when another member is read. The proxy's target is an empty object,
 * because Prisma's objects are proxies themselves and would be queried for each property's invariants.
 */
export function overrideMembers<T extends object>(
  client: () => T,
  methods: Record<string, unknown>,
  model: (name: string) => unknown = () => undefined,
): T {
  const own = (name: string): unknown => (methods[name] ??= model(name))
  return new Proxy({} as T, {
    get(_, name) {
      // `await` checks for a `then` member, which must not create the client.
      if (typeof name !== 'string' || name === 'then') return undefined
      return own(name) ?? Reflect.get(client(), name)
    },
    has: (_, name) => (typeof name === 'string' && own(name) !== undefined) || Reflect.has(client(), name),
    set: (_, name, value) => Reflect.set(methods, name, value),
  })
}

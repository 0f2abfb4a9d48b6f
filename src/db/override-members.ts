/** Returns an object that has the members of `original` except for the given ones. The original stays as it is. */
export const overrideMembers = <T extends object>(original: T, members: Record<string, unknown>): T =>
  Object.assign(Object.create(original), members)

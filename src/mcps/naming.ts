/** A server of a run. `isOwn`: attached to the agent rather than to the space. */
export type NamedServer = { id: string; name: string; isOwn: boolean }

/** A server with the prefix of its tool names (before `__`), which is unique in the run. */
export type Prefixed = NamedServer & { prefix: string }

/** A tool of a server: its name on the server, and the name for the model. */
export type NamedTool = { server: Prefixed; name: string; plain: string }

/** The tool lists of an agent. A null `allowed` allows everything. */
export type ToolLists = { allowed: ReadonlySet<string> | null; disallowed: ReadonlySet<string> }

const SEPARATOR = '__'
const MAX_TOOL_NAME = 64
/** Maximum length of a prefix. */
const MAX_PREFIX = 20
/** The beginning of `<mcpId>/<tool>`. */
const SERVER_ID = /^[0-9A-Za-z]{22}\//

const toPlain = (text: string) => text.replace(/[^A-Za-z0-9_-]+/g, '_')

/** Prefixes a name that begins with a digit or a hyphen, which Gemini rejects. */
const withLetterFirst = (text: string) => (/^[0-9-]/.test(text) ? `_${text}` : text)

/** Converts a text into a valid tool name for providers. */
export const toToolName = (text: string) => withLetterFirst(toPlain(text)).slice(0, MAX_TOOL_NAME) || '_'

/** Returns the prefix of tool names in earlier versions, which lists may still contain. */
const formerPrefix = (name: string) => toPlain(name).slice(0, MAX_PREFIX) || '_'

/** Contains no `__`, so that the first one in a name ends the prefix and every name is unambiguous. */
const basePrefix = (name: string) =>
  withLetterFirst(formerPrefix(name).replace(/_{2,}/g, '_').replace(/^_|_$/g, '') || 'mcp').slice(0, MAX_PREFIX)

/**
 * Gives each server of a run a unique prefix, ignoring case. The first of servers with equal or similar names keeps its
 * name and the others get a number; an agent's own servers precede those of its space.
 */
export function withPrefixes<Server extends NamedServer>(servers: readonly Server[]): (Server & { prefix: string })[] {
  const bases = new Set(servers.map(({ name }) => basePrefix(name).toLowerCase()))
  const given = new Set<string>()
  const ordered = servers.toSorted((one, other) => Number(other.isOwn) - Number(one.isOwn))
  return ordered.map((server) => {
    const base = basePrefix(server.name)
    let prefix = base
    for (let count = 2; given.has(prefix.toLowerCase()) || (count > 2 && bases.has(prefix.toLowerCase())); count++) {
      const ending = `_${count}`
      prefix = base.slice(0, MAX_PREFIX - ending.length) + ending
    }
    given.add(prefix.toLowerCase())
    return { ...server, prefix }
  })
}

/**
 * Names the tools of a run for its model. A tool keeps its own name if it is unique, ignoring case, and contains no
 * `__`: prefixed names are reserved for their server (contract-2.md section 8.2). `taken` are the names of other tools.
 */
export function nameTools<Tool extends NamedTool>(
  tools: readonly Tool[],
  taken: ReadonlySet<string>,
): (Tool & { modelName: string })[] {
  const used = new Set(Array.from(taken, (name) => name.toLowerCase()))
  const alike = Map.groupBy(tools, ({ plain }) => plain.toLowerCase())
  const isAlone = ({ plain }: Tool) => {
    const key = plain.toLowerCase()
    return !plain.includes(SEPARATOR) && !used.has(key) && alike.get(key)?.length === 1
  }
  const names = new Set(taken)
  return tools.map((tool) => {
    const modelName = isAlone(tool) ? tool.plain : firstFree(`${tool.server.prefix}${SEPARATOR}${tool.plain}`, names)
    names.add(modelName)
    return { ...tool, modelName }
  })
}

/** Returns the name, or the first similar one that is free. */
function firstFree(name: string, taken: ReadonlySet<string>): string {
  for (let count = 1; ; count++) {
    const ending = count === 1 ? '' : `_${count}`
    const candidate = name.slice(0, MAX_TOOL_NAME - ending.length) + ending
    if (!taken.has(candidate)) return candidate
  }
}

/**
 * Returns the tools that an agent's lists permit. An entry is `<mcpId>/<tool>`, `<server name>__<tool>`, or a tool
 * name. An allowing entry applies to the agent's own servers if one of them matches, otherwise to those of the space.
 * So a space's server never captures an entry for another server. A disallowing entry applies to every match.
 */
export function offeredTools<Tool extends NamedTool>(
  tools: readonly Tool[],
  servers: readonly Prefixed[],
  { allowed, disallowed }: ToolLists,
): Tool[] {
  const permitted = allowed && new Set(Array.from(allowed, (entry) => allowedBy(entry, tools, servers)).flat())
  return tools.filter((tool) => !isDisallowed(tool, disallowed) && (!permitted || permitted.has(tool)))
}

/** Returns the allowed names that match no tool. */
export const unknownNames = <Tool extends NamedTool>(
  tools: readonly Tool[],
  servers: readonly Prefixed[],
  { allowed }: ToolLists,
): string[] => [...(allowed ?? [])].filter((entry) => !allowedBy(entry, tools, servers).length)

/** Creates the filter of the tools that an agent's lists may allow, by their names on a server. None if all are allowed. */
export function createWanted({ allowed }: ToolLists): ((name: string) => boolean) | undefined {
  const mayMean = (entry: string, name: string) =>
    entry === name || entry.endsWith(`/${name}`) || entry.endsWith(SEPARATOR + name)
  return allowed
    ? (name) => [...allowed].some((entry) => mayMean(entry, name) || mayMean(entry, toToolName(name)))
    : undefined
}

/** Returns both forms of a tool's name, without `__` only if `before` is empty. */
const formsOf = ({ name, plain }: NamedTool, before = '') => [before + name, before + plain]

const prefixesOf = ({ name, prefix }: Prefixed) => [...new Set([name, prefix, formerPrefix(name)])]

const isDisallowed = (tool: NamedTool, disallowed: ReadonlySet<string>) =>
  [
    ...formsOf(tool),
    ...formsOf(tool, `${tool.server.id}/`),
    ...prefixesOf(tool.server).flatMap((prefix) => formsOf(tool, prefix + SEPARATOR)),
  ].some((name) => disallowed.has(name))

function allowedBy<Tool extends NamedTool>(
  entry: string,
  tools: readonly Tool[],
  servers: readonly Prefixed[],
): Tool[] {
  if (SERVER_ID.test(entry)) {
    return tools.filter((tool) => formsOf(tool, `${tool.server.id}/`).includes(entry))
  }
  if (!entry.includes(SEPARATOR)) {
    const found = tools.filter((tool) => formsOf(tool).includes(entry))
    const own = found.filter(({ server }) => server.isOwn)
    return own.length ? own : found
  }
  // The server of an entry depends only on the servers, not on the tools that they currently list.
  const meant = [...serversByTrust(entry, servers)].find((matches) => matches.size) ?? new Map<string, string>()
  return tools.filter((tool) => {
    const before = meant.get(tool.server.id)
    return before !== undefined && formsOf(tool, before).includes(entry)
  })
}

/** Yields the servers whose name the entry begins with, most trusted first. */
function* serversByTrust(entry: string, servers: readonly Prefixed[]): Generator<ReadonlyMap<string, string>> {
  const beginningOf = (isOwn: boolean, namesOf: (server: Prefixed) => readonly string[]) =>
    new Map(
      servers
        .filter((server) => server.isOwn === isOwn)
        .flatMap((server) => {
          const before = namesOf(server)
            .map((name) => name + SEPARATOR)
            .find((beginning) => entry.startsWith(beginning))
          return before === undefined ? [] : [[server.id, before] as const]
        }),
    )
  for (const isOwn of [true, false]) {
    yield beginningOf(isOwn, ({ name }) => [name])
    yield beginningOf(isOwn, (server) => prefixesOf(server))
  }
}

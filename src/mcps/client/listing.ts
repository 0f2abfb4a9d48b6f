import { type Client, type ListToolsResult, ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/client'
import { cut } from '../../lib/text.ts'
import { isObject } from '../../lib/unknown.ts'
import { type Clean, toName } from './content.ts'
import { statusOf } from './reasons.ts'
import { isLost } from './server-errors.ts'
import { requestWithSignal } from './transport.ts'

const MAX_TOOLS = 200
const MAX_PAGES = 20
const MAX_NAME = 200
const MAX_DESCRIPTION = 4000
/** Maximum size of one tool's schema, and of all schemas of a server (characters of JSON). */
const MAX_SCHEMA = 32 * 1024
const MAX_SCHEMAS = 512 * 1024
/** Maximum number of names of unusable tools. */
const MAX_OMITTED = 20

/** A tool as described by its server, cleaned. */
export type McpTool = { name: string; description: string; inputSchema: Record<string, unknown> }

/** Returns whether a run may use a tool, by its name. Absent: all of them. */
export type IsWanted = ((name: string) => boolean) | undefined

/** Tools by cleaned name, with the name on the server. `isTask`: it only runs as a task (revision 2025-11-25). */
type McpTools = Map<string, { tool: McpTool; calledAs: string; isTask: boolean }>

/**
 * Lists the wanted tools within the limits on number and size, each name once. Also stops if the cursor does not
 * advance, if a page has nothing new, or if the server refuses to show a further one.
 */
export async function listTools(client: Client, clean: Clean, signal: AbortSignal, isWanted?: IsWanted) {
  const tools: McpTools = new Map()
  const names = new Set<string>()
  const cursors = new Set<string>()
  /** Names of tools that cannot be used. */
  const omitted: string[] = []
  let size = 0
  let cursor: string | undefined

  /** Adds the tools of a page. Returns false if the limits leave some out. */
  function addAll(described: ListToolsResult['tools']): boolean {
    for (const one of described) {
      names.add(one.name)
      const name = toName(clean(one.name, MAX_NAME))
      if (isWanted && !isWanted(name)) continue
      const tool = toTool(one, clean)
      if (!tool && name && omitted.length < MAX_OMITTED) omitted.push(name)
      if (!tool || tools.has(tool.name)) continue
      size += JSON.stringify(tool).length
      if (tools.size === MAX_TOOLS || size > MAX_SCHEMAS) return false
      tools.set(tool.name, { tool, calledAs: one.name, isTask: one.execution?.taskSupport === 'required' })
    }
    return true
  }

  for (let page = 0; page < MAX_PAGES; page++) {
    const listed = await readPage(client, cursor, signal).catch((error: unknown) => {
      if (page > 0 && refusesPage(error)) return null
      throw error
    })
    if (!listed) break
    const isOld = listed.tools.length > 0 && listed.tools.every(({ name }) => names.has(name))
    if (isOld) return { tools, omitted, hasMore: false }
    if (!addAll(listed.tools)) break
    cursor = listed.nextCursor
    if (cursor === undefined || cursors.has(cursor)) return { tools, omitted, hasMore: false }
    cursors.add(cursor)
  }
  return { tools, omitted, hasMore: true }
}

/** Statuses with which servers refuse a page that they do not know. */
const REFUSED: ReadonlySet<number | undefined> = new Set([400, 405, 422, 500, 501])

const refusesPage = (error: unknown): boolean =>
  error instanceof ProtocolError || (REFUSED.has(statusOf(error)) && !isLost(error, true))

/** Reads a page of tools: an empty one if the server does not support the method, as one without tools may do. */
async function readPage(client: Client, cursor: string | undefined, signal: AbortSignal): Promise<ListToolsResult> {
  const params = cursor === undefined ? {} : { cursor }
  const request = { method: 'tools/list', params } as const
  try {
    return await requestWithSignal(signal, (options) => client.request(request, options))
  } catch (error) {
    const isUnknown = error instanceof ProtocolError && error.code === ProtocolErrorCode.MethodNotFound
    if (isUnknown && !client.getServerCapabilities()?.tools) return { tools: [] }
    throw error
  }
}

type Described = { name: string; description?: string | undefined; inputSchema: unknown }

/**
 * Returns null for a tool with an empty name, a schema that is too large even without descriptions, or a property name
 * that cleaning would change.
 */
function toTool(described: Described, clean: Clean): McpTool | null {
  const name = toName(clean(described.name, MAX_NAME))
  if (!name) return null
  const schema = withinSize(
    JSON.stringify(described.inputSchema, (_, value: unknown) =>
      typeof value === 'string' ? clean(value, MAX_SCHEMA) : value,
    ),
  )
  if (schema.length > MAX_SCHEMA || clean(schema, MAX_SCHEMA) !== schema) return null
  const text = described.description ?? ''
  // The letters are not part of the name for the model.
  const isForeign = /\P{ASCII}/u.test(name) && !text.includes(described.name)
  const description = clean(isForeign ? `${name}: ${text}` : text, MAX_DESCRIPTION)
  return { name, description, inputSchema: JSON.parse(schema) as McpTool['inputSchema'] }
}

/** Maximum lengths of the descriptions in a schema that is too long otherwise (characters). */
const SHORTER = [300, 80, 0]

/** Shortens the descriptions in a schema if it is too long, and leaves out its titles and examples. */
function withinSize(json: string): string {
  if (json.length <= MAX_SCHEMA) return json
  const schema: unknown = JSON.parse(json)
  const shorter = SHORTER.map((length) => JSON.stringify(shortened(schema, length)))
  return shorter.find(({ length }) => length <= MAX_SCHEMA) ?? json
}

/** Keywords with a schema or a list of them, and with schemas by name. */
const INNER = ['items', 'additionalProperties', 'anyOf', 'oneOf', 'allOf', 'prefixItems']
const NAMED = ['properties', 'patternProperties', '$defs', 'definitions']

function shortened(schema: unknown, length: number): unknown {
  if (Array.isArray(schema)) return schema.map((one) => shortened(one, length))
  if (!isObject(schema)) return schema
  const { title: _, examples: __, description, ...fields } = schema
  const shorter = Object.entries(fields).map(([name, value]): [string, unknown] => {
    if (INNER.includes(name)) return [name, shortened(value, length)]
    if (!NAMED.includes(name) || !isObject(value)) return [name, value]
    return [name, Object.fromEntries(Object.entries(value).map(([key, one]) => [key, shortened(one, length)]))]
  })
  const text = typeof description === 'string' && length ? { description: cut(description, length) } : {}
  return { ...text, ...Object.fromEntries(shorter) }
}

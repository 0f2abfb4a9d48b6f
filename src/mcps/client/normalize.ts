import { isNested, MAX_NESTING, parseJson } from '../../lib/json.ts'
import { asList, asObject, asText, type Fields, isObject, withoutNull } from '../../lib/unknown.ts'
import { PICTURES } from '../../media/schema.ts'
import { MAX_CONTENT } from './content.ts'

/** Maximum size of one picture (characters of base64), as providers accept. */
const MAX_PICTURE = 5 * 1024 * 1024

/**
 * Normalizes an answer for the SDK, which would reject all of it for one invalid tool or part, and report each of many
 * at length. Invalid tools are left out; the parts of a call's answer become texts and pictures. `isList`: the answer
 * is that to a request for tools.
 */
export function normalize(result: Fields, isList = false): Fields {
  if (result.resultType === 'input_required') return unanswered(result)
  const { structuredContent, isError, is_error, content, toolResult, tools, nextCursor, ...fields } =
    withoutNull(result)
  const isOfCall = !isList && [content, structuredContent, toolResult].some((part) => part !== undefined)
  const isHandshake = !isOfCall && HANDSHAKE.some((field) => field in fields)
  return {
    // Demanded since 2026-07-28.
    ...(!isHandshake && { resultType: 'complete' }),
    ...(isList && UNCACHED),
    ...fields,
    // PHP has false for no further page.
    ...((isText(nextCursor) || typeof nextCursor === 'number') && { nextCursor: String(nextCursor) }),
    ...(isHandshake && toHandshake(fields)),
    ...([isError, is_error].some(isTrue) && { isError: true }),
    ...((isList || tools !== undefined) && { tools: toTools(tools ?? content) }),
    ...(isOfCall && { content: toParts(content, structuredContent ?? toolResult) }),
  }
}

/** Returns the result of a call for which a server wants answers first (2026-07-28), with its questions. */
function unanswered({ inputRequests }: Fields): Fields {
  const questions = Object.values(asObject(inputRequests)).flatMap((request) => {
    const { message, url } = asObject(asObject(request).params)
    return [message, url].map(asText).filter(Boolean).join(' ') || []
  })
  const reason = 'it asks for something else first, such as the answer of a person, which a run cannot give'
  const text = `The call failed: ${[reason, ...questions].join(': ')}`
  return { resultType: 'complete', isError: true, content: [{ type: 'text', text }] }
}

/**
 * Returns the words of a server that refuses to list its tools as a call is refused, with a text. Returns null for any
 * other answer.
 */
export function refusalIn({ tools, content }: Fields): string | null {
  const texts = tools === undefined ? asList(content).flatMap((part) => asText(asObject(part).text) || []) : []
  return texts.join('\n\n') || null
}

/** Fields that lists have since 2026-07-28, which many servers leave out. */
const UNCACHED: Fields = { ttlMs: 0, cacheScope: 'private' }

/** Fields of the answer to `initialize`, of which servers send at least one. */
const HANDSHAKE = ['protocolVersion', 'serverInfo', 'capabilities']

const isTrue = (value: unknown) => value === true || value === 'true' || value === 1

/** Revision of a server that states none, as the specification says for requests. */
const UNSTATED = '2025-03-26'

/**
 * Completes the answer to `initialize`. Servers without a protocol library leave some out, and languages
 * without optional fields send null.
 */
function toHandshake({ protocolVersion, serverInfo, capabilities, instructions, supportedVersions }: Fields): Fields {
  const { name, version } = isObject(serverInfo) ? serverInfo : ({ name: serverInfo } as Fields)
  return {
    ...(supportedVersions === undefined && { protocolVersion: versionOf(protocolVersion) }),
    serverInfo: { name: isText(name) ? name : 'unknown', version: String(version ?? '') },
    capabilities: Object.fromEntries(Object.entries(isObject(capabilities) ? capabilities : {}).flatMap(toCapability)),
    ...(instructions !== undefined && {
      instructions: isText(instructions) ? instructions : JSON.stringify(instructions),
    }),
  }
}

/** Returns the revision that a server states: its date, without a prefix or a time. */
function versionOf(stated: unknown): string {
  const text = isText(stated) ? stated.trim() : ''
  return /^v?(\d{4}-\d\d-\d\d)(?:T|$)/.exec(text)?.[1] ?? (text || UNSTATED)
}

/** PHP sends an empty list for an empty object, and others `true` for a capability without options. */
function toCapability([name, value]: [string, unknown]): [string, unknown][] {
  if (value === true || Array.isArray(value)) return [[name, {}]]
  if (!isObject(value)) return []
  const { listChanged, subscribe, ...others } = withoutNull(value)
  const flags = Object.entries({ listChanged, subscribe }).filter(([, flag]) => typeof flag === 'boolean')
  return [[name, { ...others, ...Object.fromEntries(flags) }]]
}

type Part = { type: 'text'; text: string } | { type: 'image'; data: string; mimeType: string }

/**
 * Returns the readable parts of an answer. Structured content is added unless the texts say the same: servers should
 * send both, but many send one, or a summary as text. `content` may be a single part or a text.
 */
function toParts(content: unknown, structured: unknown): Part[] {
  const given = Array.isArray(content) ? content.flat() : content === undefined ? [] : [content]
  const parts = given.map(toPart)
  const said = parts.flatMap((part) => (part.type === 'text' ? part.text : [])).join('\n')
  if (structured === undefined || (said.trim() && saysMostOf(said, structured))) return parts
  const shown = said.trim() ? parts : parts.filter(({ type }) => type !== 'text')
  return [...shown, { type: 'text', text: JSON.stringify(structured, withoutBinary) }]
}

/** Minimum length of a text in base64 that is a file rather than a key (characters). */
const MIN_BINARY = 4096

/** Replaces files in base64, which servers also send as pictures, and which fill the context of a model. */
function withoutBinary(_: string, value: unknown): unknown {
  if (!isText(value) || value.length < MIN_BINARY) return value
  const data = value.replace(/^data:[^,]{0,100};base64,/, '')
  return BASE64.test(data) ? `[${sizeOf(data)} bytes in base64: not shown]` : value
}

/** Maximum number of values that are compared, and the maximum length of one and of the text (characters). */
const COMPARED = { values: 50, value: 60, text: MAX_CONTENT }

/** Returns whether a text says at least half of the words and numbers of a value. */
function saysMostOf(text: string, value: unknown): boolean {
  if (text.length > COMPARED.text) return true
  const json = JSON.stringify(parseJson(text)) ?? ''
  const values = valuesIn(value).take(COMPARED.values).toArray()
  const said = values.filter((one) => text.includes(one) || json.includes(JSON.stringify(one).slice(1, -1)))
  return said.length * 2 >= values.length
}

/** Finds the words and numbers in a value. */
function* valuesIn(value: unknown, left = MAX_NESTING): Generator<string> {
  if (typeof value === 'number') yield String(value)
  else if (isText(value) && value.trim()) yield value.trim().slice(0, COMPARED.value)
  else if (typeof value === 'object' && value !== null && left > 0)
    for (const part of Object.values(value)) yield* valuesIn(part, left - 1)
}

/** Base64, with any line wrapping removed. */
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

/** Preserves pictures that models can see. */
function toPart(given: unknown): Part {
  const part = isText(given) ? { type: 'text', text: given } : given
  const { data, mimeType } = isObject(part) ? pictureIn(isDataUrl(part) ? { data: part.text } : part) : NO_PICTURE
  if (PICTURES.has(mimeType) && data.length <= MAX_PICTURE && BASE64.test(data))
    return { type: 'image', data, mimeType }
  return { type: 'text', text: toText(part) }
}

const NO_PICTURE = { data: '', mimeType: '' }

/** Returns whether a part is a text that consists of a picture as a data URL. */
const isDataUrl = ({ type, text }: Fields): boolean =>
  type === 'text' && isText(text) && /^\s*data:image\/[\w.+-]{1,50};base64,/.test(text)

/** Beginnings of pictures in base64, by type. Providers refuse a picture of another type than stated. */
const BEGINNINGS: readonly (readonly [string, string])[] = [
  ['iVBORw0KGgo', 'image/png'],
  ['/9j/', 'image/jpeg'],
  ['R0lGOD', 'image/gif'],
  ['UklGR', 'image/webp'],
]

/**
 * Returns the data and type of a picture in the fields of the protocol, or in those of Anthropic's or OpenAI's
 * messages. Data may be a data URL, or base64 with the letters of URLs.
 */
function pictureIn({ type, resource, source, image_url: link, ...plain }: Fields): { data: string; mimeType: string } {
  if (type === 'text') return NO_PICTURE
  const given: Fields =
    type === 'resource' && isObject(resource)
      ? { data: resource.blob, ...resource }
      : { ...plain, ...(isObject(source) && source), ...(isObject(link) && { data: link.url }) }
  const stated = [given.mimeType, given.mimetype, given.mime_type, given.media_type].find(isText) ?? ''
  const stored = isText(given.data) ? given.data.trimStart() : ''
  const [, ofUrl] = /^data:([^;,]{0,100});base64,/.exec(stored) ?? []
  const base64 = stored.slice(ofUrl === undefined ? 0 : `data:${ofUrl};base64,`.length)
  const data = base64.replace(/\s+/g, '').replaceAll('-', '+').replaceAll('_', '/')
  const kind = (stated || ofUrl || '').toLowerCase().replace(/^image\/(?:x-)?jpe?g$/, 'image/jpeg')
  const known = BEGINNINGS.find(([beginning]) => data.startsWith(beginning))
  return { data, mimeType: known && (!kind || kind.startsWith('image/')) ? known[1] : kind }
}

const isText = (value: unknown): value is string => typeof value === 'string'

/**
 * Returns the tools of a list, or of an object by their names. Servers in Go send null or leave the field out for an
 * empty list, and others send the list alone, which arrives as content.
 */
function toTools(given: unknown) {
  if (given === undefined) return []
  if (Array.isArray(given)) return given.flatMap(toTool)
  if (!isObject(given)) return given
  return Object.entries(given).flatMap(([name, tool]) => toTool(isObject(tool) && { name, ...tool }))
}

/** Converts the description of a tool. Returns none for one without a name, whose inputs are no object, or for pages. */
function toTool(given: unknown) {
  if (!isObject(given)) return []
  // Nested, as models' APIs have it.
  const described = given.type === 'function' && isObject(given.function) ? given.function : given
  const { name, execution, annotations } = described
  const inputSchema = inputSchemaOf(described)
  if (!isText(name) || !inputSchema || isForPages(described)) return []
  const description = [described.description, described.title, isObject(annotations) && annotations.title].find(isText)
  return {
    name,
    ...(description !== undefined && { description }),
    ...(isObject(execution) && execution.taskSupport === 'required' && { execution: { taskSupport: 'required' } }),
    inputSchema,
  }
}

/**
 * Returns whether a tool is for the page of its server alone (MCP Apps, Apps SDK). Clients without such pages list it,
 * too, and are to keep it from the model.
 */
function isForPages({ _meta }: Fields): boolean {
  const { ui, 'openai/visibility': visibility } = asObject(_meta)
  const readers = asList(asObject(ui).visibility)
  return (readers.length > 0 && !readers.includes('model')) || visibility === 'private'
}

/**
 * Returns the input schema of a tool; null if its inputs are no object. A tool without a schema, or without its type,
 * accepts an object. The schema may be JSON text, or stand in the field of a model's API.
 */
function inputSchemaOf({ inputSchema, input_schema, parameters }: Fields): Fields | null {
  const given = inputSchema ?? input_schema ?? parameters ?? {}
  const stated = isText(given) ? parseJson(given) : given
  // PHP sends an empty list for an empty object.
  const schema = stated === true || isEmptyList(stated) ? {} : stated
  if (!isObject(schema) || isNested(schema)) return null
  if (isProperties(schema)) return inputSchemaOf({ inputSchema: { type: 'object', properties: schema } })
  const { type: kind = 'object', properties, required, ...others } = withoutNull(schema)
  // Some servers leave the type of a tool without inputs empty.
  const type = kind === '' || kind === 'null' ? 'object' : kind
  if (![type].flat().some((one) => isText(one) && one.toLowerCase() === 'object')) return null
  if (properties !== undefined && !isObject(properties) && !isEmptyList(properties)) return null
  const names = Array.isArray(required) ? required.filter(isText) : []
  return {
    ...others,
    type: 'object',
    ...(isObject(properties) && { properties }),
    ...(names.length && { required: names }),
  }
}

/** Returns whether a schema consists of the properties alone, each with its type. */
const isProperties = (schema: Fields): boolean =>
  Object.keys(schema).length > 0 && Object.values(schema).every((one) => isObject(one) && isText(one.type))

const isEmptyList = (value: unknown) => Array.isArray(value) && value.length === 0

/** Describes a part of an answer as text for the model. */
function toText(given: unknown): string {
  const part = asObject(given)
  if (isText(part.text)) return part.text
  if (part.type === 'text' && part.text !== undefined && part.text !== null) return JSON.stringify(part.text)
  const described = mediaText(part) ?? linkText(part) ?? resourceText(part)
  if (described !== null) return described
  // Parts of later revisions, and of servers' own.
  const hasMore = Object.keys(part).some((key) => !WITHOUT_CONTENT.has(key))
  return hasMore && !BINARY.has(part.type) ? JSON.stringify(given, withoutBinary) : '[unsupported content]'
}

/** Describes a picture or a recording that the model does not see. Returns null for other parts. */
function mediaText({ type, data, mimeType }: Fields): string | null {
  if ((type !== 'image' && type !== 'audio') || !isText(data)) return null
  return `[${type}, ${isText(mimeType) ? mimeType : 'without a type'}, ${sizeOf(data)} bytes: not shown]`
}

/** Describes a link. Returns null for other parts. */
function linkText(part: Fields): string | null {
  const { type, uri, title, name, description } = part
  const address = addressIn(part)
  if (BINARY.has(type) && address !== undefined) return `[link to ${type}: ${address}]`
  if (type !== 'resource_link' || !isText(uri)) return null
  return `[link to ${[[title, name].find(isText), uri, description].filter(isText).join(': ')}]`
}

/** Types of the pages that servers have for people (MCP-UI, MCP Apps), which would fill the context of a model. */
const PAGE = /html|javascript/i

/** Describes an embedded resource, with its text if it has some. Returns null for other parts. */
function resourceText({ type, resource }: Fields): string | null {
  if (type !== 'resource' || !isObject(resource)) return null
  const { uri: given, text, blob, mimeType } = resource
  const uri = isText(given) ? given : 'resource'
  if (/^ui:/i.test(uri) && PAGE.test(String(mimeType))) return `[${uri}, a page for people: not shown]`
  const content = isText(text) ? text : isText(blob) && isText(mimeType) ? textIn(blob, mimeType) : null
  if (content !== null) return `[${uri}]\n${content}`
  return isText(blob) ? `[${uri}, ${isText(mimeType) ? mimeType : 'binary'}, ${sizeOf(blob)} bytes: not shown]` : null
}

/** Returns the address of a picture that a server leaves where it is, in fields of models' APIs. */
const addressIn = ({ url, source, image_url: link }: Fields): unknown =>
  [url, asObject(source).url, asObject(link).url].find((one) => isText(one) && /^https?:/i.test(one))

/** Types of files that are text, which some servers send in base64 nevertheless. */
const TEXT_FILE =
  /^\s*(?:text\/|image\/svg\+xml\b|application\/(?:[\w.-]+\+)?(?:json|xml|yaml|x-yaml|javascript|sql|toml|x-ndjson|jsonl)\b)/i

/** Returns the text of a file in base64, or null if it is none. */
function textIn(base64: string, mimeType: string): string | null {
  if (!TEXT_FILE.test(mimeType) || !BASE64.test(base64.replace(/\s+/g, ''))) return null
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(base64, 'base64'))
  } catch {
    return null
  }
}

/** Fields of a part that are not its content. */
const WITHOUT_CONTENT: ReadonlySet<string> = new Set(['type', 'annotations', '_meta'])
const BINARY: ReadonlySet<unknown> = new Set(['image', 'image_url', 'audio', 'resource'])

const sizeOf = (base64: string) => Math.floor((base64.length * 3) / 4)

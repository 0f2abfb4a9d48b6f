import { type Fields, isObject } from '../lib/unknown.ts'
import { PICTURES } from '../media/schema.ts'

/** Maximum size of one picture (characters of base64), as providers accept. */
const MAX_PICTURE = 5 * 1024 * 1024

/** Maximum nesting of a schema (levels). */
const MAX_DEPTH = 64

/**
 * Normalizes an answer for the SDK, which would reject all of it for one invalid tool or part, and report each of many
 * at length. Invalid tools are left out; the parts of a call's answer become texts and pictures.
 */
export function normalize(result: Fields): Fields {
  const { structuredContent, isError, content, toolResult, ...fields } = withoutNull(result)
  const { tools, capabilities, serverInfo } = fields
  const isOfCall = [content, structuredContent, toolResult].some((part) => part !== undefined)
  return {
    ...fields,
    // Servers in languages without optional fields send null.
    ...(isObject(capabilities) && { capabilities: withoutNulls(capabilities) }),
    ...(isObject(serverInfo) && { serverInfo: withoutNulls(serverInfo) }),
    ...(typeof isError === 'boolean' && { isError }),
    ...(Array.isArray(tools) && { tools: tools.flatMap(toTool) }),
    ...(isOfCall && { content: toParts(content, structuredContent ?? toolResult) }),
  }
}

type Part = { type: 'text'; text: string } | { type: 'image'; data: string; mimeType: string }

/**
 * Returns the readable parts of an answer. Structured content is used if no part contains text: servers should send
 * both, but many send one. `content` may be a single part or a text.
 */
function toParts(content: unknown, structured: unknown): Part[] {
  const given = Array.isArray(content) ? content : content === undefined ? [] : [content]
  const parts = given.map(toPart)
  if (structured === undefined || parts.some((part) => part.type === 'text' && part.text.trim())) return parts
  return [...parts.filter(({ type }) => type !== 'text'), { type: 'text', text: JSON.stringify(structured) }]
}

/** Base64, with any line wrapping removed. */
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

/** Preserves pictures that models can see. */
function toPart(part: unknown): Part {
  if (isText(part)) return { type: 'text', text: part }
  const { type, data, mimeType, resource } = isObject(part) ? part : {}
  const picture = type === 'resource' && isObject(resource) ? { data: resource.blob, ...resource } : { data, mimeType }
  const bytes = isText(picture.data) && type !== 'text' ? picture.data.replace(/\s+/g, '') : ''
  const kind = isText(picture.mimeType) ? picture.mimeType.toLowerCase() : ''
  if (PICTURES.has(kind) && bytes.length <= MAX_PICTURE && BASE64.test(bytes)) {
    return { type: 'image', data: bytes, mimeType: kind }
  }
  return { type: 'text', text: toText(part) }
}

const isText = (value: unknown): value is string => typeof value === 'string'

/** Treats null fields as absent. */
const withoutNull = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))

/** Treats null fields as absent, two levels deep. */
const withoutNulls = (fields: Fields): Fields =>
  Object.fromEntries(
    Object.entries(withoutNull(fields)).map(([name, value]) => [name, isObject(value) ? withoutNull(value) : value]),
  )

/** Converts the description of a tool. One without a schema, or without its type, accepts an object. */
function toTool(described: unknown) {
  if (!isObject(described)) return []
  const { name, description } = described
  const inputSchema = described.inputSchema ?? {}
  if (!isText(name) || !isObject(inputSchema) || isTooDeep(inputSchema)) return []
  const schema = withoutNull(inputSchema)
  const { type = 'object', properties = {}, required = [] } = schema
  if (type !== 'object' || !isObject(properties) || !(Array.isArray(required) && required.every(isText))) return []
  return { name, ...(isText(description) && { description }), inputSchema: { ...schema, type } }
}

const isTooDeep = (value: unknown, left = MAX_DEPTH): boolean =>
  left === 0 ||
  (typeof value === 'object' && value !== null && Object.values(value).some((part) => isTooDeep(part, left - 1)))

/** Describes a part of an answer as text for the model. */
function toText(part: unknown): string {
  const { type, text, data, mimeType, name, uri, resource } = isObject(part) ? part : {}
  if (isText(text)) return text
  if ((type === 'image' || type === 'audio') && isText(data)) {
    return `[${type}, ${isText(mimeType) ? mimeType : 'without a type'}, ${sizeOf(data)} bytes: not shown]`
  }
  if (type === 'resource_link' && isText(uri)) return `[link to ${isText(name) ? `${name}: ` : ''}${uri}]`
  if (type === 'resource' && isObject(resource)) {
    const { uri: given, text, blob, mimeType } = resource
    const uri = isText(given) ? given : 'resource'
    if (isText(text)) return `[${uri}]\n${text}`
    if (isText(blob)) return `[${uri}, ${isText(mimeType) ? mimeType : 'binary'}, ${sizeOf(blob)} bytes: not shown]`
  }
  return '[unsupported content]'
}

const sizeOf = (base64: string) => Math.floor((base64.length * 3) / 4)

import { type Fields, isObject } from '../lib/unknown.ts'
import { PICTURES } from '../media/schema.ts'

/** Of one picture, in characters of base64: what providers take. */
const MAX_PICTURE = 5 * 1024 * 1024

/** In levels: deeper schemas are of no use. */
const MAX_DEPTH = 64

/**
 * An answer of a server in the form that the SDK wants, as far as it is of use: for one tool or one part that is wrong the
 * SDK would refuse all of it, and for many it would say of each at length what is wrong. Tools that are, are left out; the
 * parts of an answer to a call become texts and pictures.
 */
export function normalize(result: Fields): Fields {
  const { structuredContent, isError, content, toolResult, ...said } = withoutNull(result)
  const { tools } = said
  const isOfCall = [content, structuredContent, toolResult].some((part) => part !== undefined)
  return {
    ...said,
    ...(typeof isError === 'boolean' && { isError }),
    ...(Array.isArray(tools) && { tools: tools.flatMap(toTool) }),
    ...(isOfCall && { content: toParts(content, structuredContent ?? toolResult) }),
  }
}

type Part = { type: 'text'; text: string } | { type: 'image'; data: string; mimeType: string }

/**
 * The parts of an answer that can be read. What is structured counts where no text says anything: servers are to give
 * both, and many give one. `content` may be a single part, or a text.
 */
function toParts(content: unknown, structured: unknown): Part[] {
  const given = Array.isArray(content) ? content : content === undefined ? [] : [content]
  const parts = given.map(toPart)
  if (structured === undefined || parts.some((part) => part.type === 'text' && part.text.trim())) return parts
  return [...parts.filter(({ type }) => type !== 'text'), { type: 'text', text: JSON.stringify(structured) }]
}

/** What is base64, however a server wraps its lines. */
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/

/** A picture that models can see stays one. */
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

/** What is null is not there. */
const withoutNull = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))

/** Without a schema, or its type, a tool takes an object. */
function toTool(described: unknown) {
  if (!isObject(described)) return []
  const { name, description } = described
  const said = described.inputSchema ?? {}
  if (!isText(name) || !isObject(said) || isTooDeep(said)) return []
  const schema = withoutNull(said)
  const { type = 'object', properties = {}, required = [] } = schema
  if (type !== 'object' || !isObject(properties) || !(Array.isArray(required) && required.every(isText))) return []
  return { name, ...(isText(description) && { description }), inputSchema: { ...schema, type } }
}

const isTooDeep = (value: unknown, left = MAX_DEPTH): boolean =>
  left === 0 ||
  (typeof value === 'object' && value !== null && Object.values(value).some((part) => isTooDeep(part, left - 1)))

/** A part of an answer as the model reads it: text as it is, the rest in words. */
function toText(part: unknown): string {
  const { type, text, data, mimeType, name, uri, resource } = isObject(part) ? part : {}
  if (type === 'text' && isText(text)) return text
  if ((type === 'image' || type === 'audio') && isText(data)) {
    return `[${type}, ${isText(mimeType) ? mimeType : 'of no type'}, ${sizeOf(data)} bytes: not shown]`
  }
  if (type === 'resource_link' && isText(name) && isText(uri)) return `[link to ${name}: ${uri}]`
  if (type === 'resource' && isObject(resource) && isText(resource.uri)) {
    const { uri, text, blob, mimeType } = resource
    if (isText(text)) return `[${uri}]\n${text}`
    if (isText(blob)) return `[${uri}, ${isText(mimeType) ? mimeType : 'binary'}, ${sizeOf(blob)} bytes: not shown]`
  }
  return '[something that cannot be shown]'
}

const sizeOf = (base64: string) => Math.floor((base64.length * 3) / 4)

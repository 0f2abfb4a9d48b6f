import { type Fields, isObject } from '../lib/unknown.ts'

/** In levels: deeper schemas are of no use. */
const MAX_DEPTH = 64

/**
 * An answer of a server in the form that the SDK wants, as far as it is of use: for one tool or one part that is wrong the
 * SDK would refuse all of it, and for many it would say of each at length what is wrong. Tools that are, are left out; the
 * parts of an answer to a call become texts.
 */
export function normalize(result: Fields): Fields {
  const { structuredContent, isError, ...said } = withoutNull(result)
  const { tools, content } = said
  return {
    ...said,
    ...(isObject(structuredContent) && { structuredContent }),
    ...(typeof isError === 'boolean' && { isError }),
    ...(Array.isArray(tools) && { tools: tools.flatMap(toTool) }),
    ...(Array.isArray(content) && { content: content.map((part) => ({ type: 'text', text: toText(part) })) }),
  }
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

import { camelCased } from '../../../lib/text.ts'
import { asList, asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { plainSchema } from '../models/tool-schemas.ts'
import { type Changes, numberOf, valuesOf } from './change.ts'

// Changes the bodies of requests, which the provider packages have made (contract-2.md section 2.1).

/** Request fields that the service sets itself. It reads only one answer (`n`). */
const RESERVED = ['model', 'messages', 'stream', 'n']

/** Returns the names in `extra` that are not merged into a body. */
export const reservedIn = (extra: Fields): string[] => RESERVED.filter((name) => name in extra)

/** Applies changes to the body that a provider package has made: one after the other, because several change a part. */
export function changePackagedBody(given: Fields, changes: Changes): Fields {
  const names = new Set(valuesOf('omit', changes))
  let body = names.size ? withoutFields(given, names) : given
  body = { ...body, ...limitsIn(body, changes) }
  if (changes.has('stream') && 'stream' in body) body = { ...body, stream: false }
  if (changes.has('older_parameters')) body = { ...body, tools: asList(body.tools).map(withOlderParameters) }
  if (signs(changes)) body = { ...body, contents: asList(body.contents).map((one) => withSignatures(one, changes)) }
  body = { ...body, ...withoutPartFields(body, changes) }
  if (changes.has('item_ids')) body = { ...body, input: asList(body.input).map((item) => omitted(item, ID)) }
  if (changes.has('instructions')) body = { ...body, ...withInstructions(asList(body.input)) }
  if (changes.has('plain_content')) body = { ...body, ...withPlainContent(body) }
  if (changes.has('add_reasoning')) body = { ...body, messages: asList(body.messages).map(withThinking) }
  return body
}

/** Names of the limit of the answer in the APIs. */
const LIMITS = ['max_tokens', 'max_completion_tokens', 'max_output_tokens']

/** Returns the limits of the answer in a body, lowered by changes. */
function limitsIn(body: Fields, changes: Changes): Fields {
  const affordable = numberOf('afford', changes)
  const limits = [affordable, numberOf('max_tokens', changes), numberOf('answer', changes)]
  const most = Math.min(...limits.map((limit) => limit ?? Number.POSITIVE_INFINITY))
  if (most === Number.POSITIVE_INFINITY) return {}
  const given = LIMITS.filter((name) => typeof body[name] === 'number')
  if (!given.length && affordable !== null) return { max_tokens: most }
  return Object.fromEntries(given.map((name) => [name, Math.min(Number(body[name]), most)]))
}

/** Google's documented signature for calls that another model has made. */
const UNCHECKED = 'skip_thought_signature_validator'

const signs = (changes: Changes): boolean => changes.has('signatures') || changes.has('signatures:here')

/** Signs the calls of a message of Google's API, and replaces wrong signatures. */
function withSignatures(content: unknown, changes: Changes): unknown {
  const { parts, ...rest } = asObject(content)
  const isWrong = changes.has('signatures:here')
  const signed = asList(parts).map((part) => {
    if (!isObject(part) || (!isWrong && part.thoughtSignature)) return part
    if (part.functionCall !== undefined) return { ...part, thoughtSignature: UNCHECKED }
    const { thoughtSignature, ...unsigned } = part
    return unsigned
  })
  return { ...rest, parts: signed }
}

const ID: ReadonlySet<string> = new Set(['id'])

/** Returns an object without fields; any other value unchanged. */
const omitted = (value: unknown, names: ReadonlySet<string>): unknown =>
  isObject(value) ? Object.fromEntries(Object.entries(value).filter(([name]) => !names.has(name))) : value

/** Leaves out fields of the parts of Google's contents, and of the calls and results in them. */
function withoutPartFields({ contents }: Fields, changes: Changes): Fields {
  const names = new Set(valuesOf('parts', changes).map(camelCased))
  if (!names.size) return {}
  const omit = (value: unknown) => omitted(value, names)
  const changed = asList(contents).map((content) => {
    const { parts, ...rest } = asObject(content)
    const kept = asList(parts).map((part) =>
      Object.fromEntries(Object.entries(omit(part) as Fields).map(([name, value]) => [name, omit(value)])),
    )
    return { ...rest, parts: kept }
  })
  return { contents: changed }
}

/** Moves the system prompt of OpenAI's Responses API into the field that ChatGPT's servers demand. */
function withInstructions(input: readonly unknown[]): Fields {
  const isSystem = (item: unknown) => ['system', 'developer'].includes(asText(asObject(item).role))
  const instructions = input.filter(isSystem).map((item) => asText(asObject(item).content))
  return { instructions: instructions.join('\n\n'), input: input.filter((item) => !isSystem(item)) }
}

/** Sends lists of texts as one text, in the messages of Anthropic's API or OpenAI's. */
function withPlainContent(body: Fields): Fields {
  const names = ['messages', 'input'].filter((name) => Array.isArray(body[name]))
  return Object.fromEntries(names.map((name) => [name, asList(body[name]).map(plainMessage)]))
}

function plainMessage(message: unknown): unknown {
  const { content, ...rest } = asObject(message)
  const texts = asList(content).map((part) => asObject(part).text)
  const isPlain = texts.length > 0 && texts.every((text) => typeof text === 'string')
  return isPlain ? { ...rest, content: texts.join('\n\n') } : message
}

/** Begins an answer of Anthropic's API without thinking with an empty one, which DeepSeek demands. */
function withThinking(message: unknown): unknown {
  const { role, content, ...rest } = asObject(message)
  const thinks = asList(content).some((part) => /thinking$/.test(asText(asObject(part).type)))
  if (role !== 'assistant' || thinks || !Array.isArray(content)) return message
  return { ...rest, role, content: [{ type: 'thinking', thinking: '', signature: '' }, ...content] }
}

/** Describes the inputs of Google's functions in the field `parameters`, which has fewer keywords. */
function withOlderParameters(tool: unknown): unknown {
  const { functionDeclarations, ...rest } = asObject(tool)
  if (!Array.isArray(functionDeclarations)) return tool
  const declared = functionDeclarations.map(({ parametersJsonSchema, ...declaration }) => {
    const parameters = withoutEmptyProperties(asObject(plainSchema(parametersJsonSchema)))
    return { ...declaration, ...(parameters.properties !== undefined && { parameters }) }
  })
  return { ...rest, functionDeclarations: declared }
}

/** Leaves out lists of properties that are empty, which some servers reject. */
function withoutEmptyProperties({ properties, items, ...node }: Fields): Fields {
  const kept = Object.entries(asObject(properties)).map(([name, one]) => [name, withoutEmptyProperties(asObject(one))])
  return {
    ...node,
    ...(kept.length && { properties: Object.fromEntries(kept) }),
    ...(items !== undefined && { items: withoutEmptyProperties(asObject(items)) }),
  }
}

/** Parts of a body whose fields are not those of the request. */
const CONTENTS: ReadonlySet<string> = new Set(['messages', 'input', 'contents', 'system', 'systemInstruction'])

/** Leaves out fields of the request, of the objects in it, and of its tools. */
function withoutFields(body: Fields, names: ReadonlySet<string>): Fields {
  const omit = (value: unknown) => omitted(value, names)
  return Object.fromEntries(
    Object.entries(omit(body) as Fields).map(([name, value]) => [
      name,
      CONTENTS.has(name) ? value : Array.isArray(value) ? value.map(omit) : omit(value),
    ]),
  )
}

/** Merges fields into the body of a request to an OpenAI-compatible server, and applies changes. */
export function changeBody(body: Fields, extra: Fields, changes: Changes): Fields {
  const changed: Record<string, unknown> = { ...body, ...extra }
  for (const name of RESERVED) changed[name] = body[name]
  if (changes.has('stream')) changed.stream = false
  if (changes.has('stream_options') || changes.has('stream')) delete changed.stream_options
  if (changes.has('max_completion_tokens')) {
    changed.max_completion_tokens = body.max_tokens
    delete changed.max_tokens
  }
  if (changes.has('no_effort') && asList(body.tools).length) changed.reasoning_effort = 'none'
  for (const name of Object.keys(extra)) if (changes.has(`extra:${name}`)) delete changed[name]
  if (changes.has('empty_inputs')) changed.tools = asList(body.tools).map(withoutEmptyInputs)
  changed.messages = changeMessages(asList(body.messages) as readonly Fields[], changes)
  return { ...changed, ...limitsIn(changed, changes) }
}

function changeMessages(messages: readonly Fields[], changes: Changes): readonly Fields[] {
  let changed = messages
  if (changes.has('add_reasoning')) changed = changed.map(withReasoning)
  if (changes.has('empty_content')) changed = changed.map((message) => ({ ...message, content: message.content ?? '' }))
  if (changes.has('filled_content')) changed = changed.map((message) => withContent(message, '(no text)'))
  if (changes.has('blank_content')) changed = changed.map((message) => withContent(message, ' '))
  if (signs(changes)) changed = changed.map((message) => withSignedCalls(message, changes.has('signatures:here')))
  if (changes.has('calls_alone')) changed = changed.map(withoutTextOfCalls)
  if (changes.has('plain_references')) changed = changed.map(withPlainReferences)
  if (changes.has('single_calls')) changed = withSingleCalls(changed)
  return changes.has('tool_names') ? withToolNames(changed) : changed
}

const withContent = (message: Fields, content: string): Fields =>
  message.role === 'assistant' && !message.content ? { ...message, content } : message

const withoutTextOfCalls = (message: Fields): Fields =>
  asList(message.tool_calls).length ? { ...message, content: '' } : message

/** Renames the references of JSON schemas in a result, which gateways for Google's models parse. */
const withPlainReferences = (message: Fields): Fields =>
  message.role === 'tool' ? { ...message, content: asText(message.content).replaceAll('"$ref"', '"ref"') } : message

/** Splits messages with several calls, each call with its result behind it. */
function withSingleCalls(messages: readonly Fields[]): readonly Fields[] {
  const resultOf = ({ id }: Fields) => messages.filter(({ tool_call_id: of }) => of !== undefined && of === id)
  const moved = new Set<unknown>()
  return messages.flatMap((message) => {
    const calls = asList(message.tool_calls).map(asObject)
    if (calls.length < 2) return moved.has(message.tool_call_id) ? [] : [message]
    return calls.flatMap((call, place) => {
      moved.add(call.id)
      const single = { ...message, ...(place > 0 && { content: null }), tool_calls: [call] }
      return [single, ...resultOf(call)]
    })
  })
}

function withoutEmptyInputs(tool: unknown): unknown {
  const { function: described, ...rest } = asObject(tool)
  const { parameters, ...fields } = asObject(described)
  const kept = withoutEmptyProperties(asObject(parameters))
  return { ...rest, function: { ...fields, ...(kept.properties !== undefined && { parameters: kept }) } }
}

const withSignedCalls = (message: Fields, isWrong: boolean): Fields =>
  Array.isArray(message.tool_calls)
    ? {
        ...message,
        tool_calls: message.tool_calls.map((call) => ({
          extra_content: SIGNED,
          ...call,
          ...(isWrong && { extra_content: SIGNED }),
        })),
      }
    : message

const SIGNED = { google: { thought_signature: UNCHECKED } }

/** Names the tool in each result, as the first clients did. */
function withToolNames(messages: readonly Fields[]): readonly Fields[] {
  const calls = messages.flatMap(({ tool_calls: made }) => asList(made).map(asObject))
  return messages.map((message) => {
    if (message.role !== 'tool') return message
    const call = calls.findLast(({ id }) => id === message.tool_call_id)
    return { ...message, name: asText(asObject(call?.function).name) }
  })
}

const withReasoning = (message: Fields): Fields =>
  message.role === 'assistant' && !message.reasoning_content ? { ...message, reasoning_content: ' ' } : message

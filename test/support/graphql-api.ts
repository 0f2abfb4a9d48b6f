import {
  type GraphQLArgument,
  type GraphQLField,
  type GraphQLInputType,
  type GraphQLInterfaceType,
  type GraphQLNamedOutputType,
  type GraphQLObjectType,
  getNamedType,
  getNullableType,
  isInputObjectType,
  isLeafType,
  isListType,
  isNonNullType,
  isObjectType,
  type OperationTypeNode,
  parse,
} from 'graphql'
import { extensionsOf } from '../../src/graphql/builder.ts'
import { checkLimits } from '../../src/graphql/document-limits.ts'
import { schema } from '../../src/graphql/schema.ts'
import { graphql, post } from '../graphql/support.ts'
import { procedures } from './api.ts'
import type { Input } from './inputs.ts'
import type { TestServer } from './server.ts'
import { onSilence } from './silence.ts'

/** GraphQL by its schema: the root field of each procedure, and documents that call it. */

type Operation = 'query' | 'mutation' | 'subscription'
type Field = GraphQLField<unknown, unknown>

/** A field of Query, Mutation or Subscription with its procedure, or null without one. */
export type Root = { operation: Operation; field: Field; procedure: string | null }

export const ROOTS: readonly Root[] = (['query', 'mutation', 'subscription'] as const).flatMap((operation) =>
  Object.values(schema.getRootType(operation as OperationTypeNode)?.getFields() ?? {}).map((field) => {
    const ofField = extensionsOf(field).procedure as unknown
    const [procedure = null] = Object.entries(procedures).find(([, known]) => (known as unknown) === ofField) ?? []
    return { operation, field: field as Field, procedure }
  }),
)

/** The root fields of a procedure. */
export const rootsOf = (procedure: string): Root[] => ROOTS.filter((root) => root.procedure === procedure)

export const NODE = ROOTS.find(({ field }) => field.name === 'node')!

/** The kinds of rows that `node` finds, with GraphQL's names for them. */
export const NODES: ReadonlyMap<string, string> = new Map(
  schema
    .getPossibleTypes(getNamedType(NODE.field.type) as GraphQLInterfaceType)
    .map(({ name }) => [name.toLowerCase(), name]),
)

/** The fields of `input` if that is the only argument, or the arguments themselves. */
export function inputsOf({ field: { args } }: Root): Readonly<Record<string, { type: GraphQLInputType }>> {
  const [input] = args
  const type = args.length === 1 && input?.name === 'input' ? getNullableType(input.type) : null
  if (isInputObjectType(type)) return type.getFields()
  return Object.fromEntries(args.map((arg) => [arg.name, arg]))
}

/** Converts a value of REST to GraphQL: an object by name becomes a list of objects with a name. */
function toValue(value: unknown, type: GraphQLInputType): unknown {
  const plain = getNullableType(type)
  const isRecord = typeof value === 'object' && value !== null && !Array.isArray(value)
  if (!isListType(plain) || !isRecord) return value
  return Object.entries(value).map(([name, of]) => (typeof of === 'object' ? { name, ...of } : { name, value: of }))
}

/** Converts an input to variables, as far as the root field has arguments for it. */
function variablesOf(root: Root, input: Input): Record<string, unknown> {
  const places = inputsOf(root)
  const given = Object.fromEntries(
    Object.entries(input).flatMap(([name, value]) => (places[name] ? [[name, toValue(value, places[name].type)]] : [])),
  )
  return places === undefined || root.field.args.some(({ name }) => name in places) ? given : { input: given }
}

/** Few rows per list, so that many fields of each can be selected. */
const FEW = 5

/** The argument that limits a list. */
const pageOf = ({ args }: Field): string | undefined =>
  args.find(({ name }) => name === 'first' || name === 'limit')?.name

const isFree = ({ args }: Field) => args.every((arg: GraphQLArgument) => !isNonNullType(arg.type))

/**
 * Selects everything without arguments, a number of levels deep. For an abstract type it selects the type names. A list
 * of things of the same type, which has no limit, selects their own fields only, or nothing.
 */
function select(type: GraphQLNamedOutputType, depth: number, ownKind: boolean): string {
  if (isLeafType(type)) return ''
  return `{ ${['__typename', ...(isObjectType(type) ? fieldsOf(type, depth, ownKind) : [])].join(' ')} }`
}

const fieldsOf = (type: GraphQLObjectType, depth: number, ownKind: boolean): string[] =>
  Object.values(type.getFields() as Record<string, Field>).flatMap((field) => {
    const target = getNamedType(field.type)
    if (!isFree(field) || (!isLeafType(target) && depth === 0)) return []
    const page = pageOf(field)
    const isOfOwnKind = target === type && isListType(getNullableType(field.type))
    if (isOfOwnKind) return ownKind ? `${field.name} ${select(target, 0, ownKind)}` : []
    return `${field.name}${page ? `(${page}: ${FEW})` : ''} ${select(target, depth - 1, ownKind)}`
  })

const documents = new Map<string, string>()

/**
 * Creates a document that calls the root field and selects as much as the limits allow, at most `depth` levels deep. If
 * the field has several types, `on` selects one. The document is cached per set of variables.
 */
export function documentOf(root: Root, variables: Record<string, unknown>, depth = 2, on?: string): string {
  const place = [root.operation, root.field.name, depth, on, ...Object.keys(variables)].join(' ')
  const known = documents.get(place)
  if (known !== undefined) return known
  const made = makeDocument(root, variables, depth, on)
  documents.set(place, made)
  return made
}

function makeDocument({ operation, field }: Root, variables: Record<string, unknown>, depth: number, on?: string) {
  const args = field.args.filter(({ name }) => name in variables)
  const declared = args.length ? `(${args.map(({ name, type }) => `$${name}: ${type}`).join(', ')})` : ''
  const given = args.length ? `(${args.map(({ name }) => `${name}: $${name}`).join(', ')})` : ''
  const target = getNamedType(field.type)
  const one = on === undefined ? undefined : schema.getType(on)
  const made = (deep: number, ownKind: boolean) => {
    const selection = isObjectType(one)
      ? `{ __typename ... on ${one.name} ${select(one, deep, ownKind)} }`
      : select(target, deep, ownKind)
    return `${operation}${declared} { ${field.name}${given} ${selection} }`
  }
  for (let deep = depth; ; deep--) {
    for (const ownKind of [true, false]) {
      const text = made(deep, ownKind)
      try {
        checkLimits(schema, parse(text), variables)
        return text
      } catch (error) {
        if (deep <= 0 && !ownKind) throw error
      }
    }
  }
}

export type GraphQLApiAnswer = { status: number; data: any; errors: any[] | undefined }

type CallOptions = { token?: string | null; headers?: Record<string, string> }

/** Calls a root field with the input of its procedure. Returns the first event of a subscription. */
export async function callRoot(
  server: Pick<TestServer, 'url' | 'token'>,
  root: Root,
  input: Input,
  { depth = 2, on, ...options }: CallOptions & { depth?: number; on?: string } = {},
): Promise<GraphQLApiAnswer> {
  const page = pageOf(root.field)
  const variables = { ...(page && { [page]: 100 }), ...variablesOf(root, input) }
  const text = documentOf(root, variables, depth, on)
  if (root.operation !== 'subscription') {
    const { status, data, errors } = await graphql(server, text, variables, options)
    return { status, data, errors }
  }
  const mayBeSilent = !BEGIN_AT_ONCE.has(root.field.name)
  return firstOf(server, { query: text, variables }, options, mayBeSilent)
}

/** Subscriptions that begin with an event. Changes may never come. */
const BEGIN_AT_ONCE = new Set(['executionEvents', 'chatEvents'])

async function firstOf(
  server: Pick<TestServer, 'url' | 'token'>,
  body: object,
  { headers, ...options }: CallOptions,
  mayBeSilent: boolean,
): Promise<GraphQLApiAnswer> {
  const response = await post(server, body, { ...options, headers: { ...headers, Accept: 'text/event-stream' } })
  const isJson = response.headers.get('content-type')?.startsWith('application/json')
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader()
  using silence = mayBeSilent && !isJson ? onSilence(() => void reader.cancel()) : null
  let text = ''
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value
    if (isJson) continue
    if (/^event: (next|complete)\n.*\n/m.test(text)) break
    // The rest of an event that has begun will come.
    if (/^e/m.test(text)) silence?.[Symbol.dispose]()
  }
  await reader.cancel()
  const first = isJson ? text : /^event: next\ndata:(.*)\n/m.exec(text)?.[1]
  const { data = null, errors } = JSON.parse(first ?? '{}')
  return { status: response.status, data, errors }
}

import { type ExecutionResult, GraphQLError, type GraphQLSchema, getOperationAST, Kind } from 'graphql'
import { isAsyncIterable, mapAsyncIterator, type Plugin, processRegularResult } from 'graphql-yoga'
import type { Actor } from '../auth/actor.ts'
import { AppError, toAppError, toBody } from '../errors.ts'
import { sizeOf } from '../lib/page.ts'
import { explain } from './input-errors.ts'
import { answerTooLong, LIMITS, TOO_MUCH } from './limits.ts'
import type { GraphQLRequest } from './requests.ts'

/**
 * Returns errors with the contract's messages and fields. A client that accepts no supported media type gets JSON, and
 * a refusal of a subscription. Multipart is not offered, because no response comes in parts.
 */
export const useResponses = (
  schema: GraphQLSchema,
): Plugin<Pick<GraphQLRequest, 'answer' | 'executeInTurn'> & { actor: Actor }, GraphQLRequest> => ({
  onExecute({ args: { document, operationName, contextValue }, executeFn, setExecuteFn }) {
    const operation = getOperationAST(document, operationName)?.operation
    const { answer, executeInTurn, actor } = contextValue
    answer.isOfMutation = operation === 'mutation'
    if (operation !== 'query' || !executeInTurn) return
    setExecuteFn((args) =>
      executeInTurn(actor, async () => {
        answer.size = 0
        return executeFn(args)
      }),
    )
  },
  onResultProcess({ request, result, setResult, resultProcessor, setResultProcessor, serverContext }) {
    const answer = (one: ExecutionResult) => toAnswer(schema, one, serverContext)
    if (isAsyncIterable(result)) {
      if (resultProcessor) return setResult(mapAsyncIterator(result, answer))
      // Apollo's HttpLink accepts parts alone, and would wait for ever for the end of the events.
      void result[Symbol.asyncIterator]().return?.()
      const json = ['application/graphql-response+json', 'application/json'] as const
      const accept = request.headers.get('accept') ?? ''
      setResultProcessor(processRegularResult, json.find((type) => accept.includes(type)) ?? json[1])
      setResult(answer({ errors: [new GraphQLError(NO_EVENTS, { extensions: { detail: USE_EVENTS } })] }))
    } else if (!Array.isArray(result)) {
      const multipart =
        resultProcessor !== processRegularResult && /multipart/i.test(request.headers.get('accept') ?? '')
      if (!resultProcessor || multipart) setResultProcessor(processRegularResult, 'application/json')
      setResult(answer(result))
    }
  },
})

const NO_EVENTS = 'Subscriptions need a client that accepts server-sent events'
const USE_EVENTS =
  'Send the header Accept: text/event-stream, as the library graphql-sse does. In Apollo Client, make a link with it.'

function toAnswer(schema: GraphQLSchema, result: ExecutionResult, request: GraphQLRequest): ExecutionResult {
  request.answer.size = 0
  if (isTooLong(result)) return { errors: [present(answerTooLong(), request)] }
  if (!result.errors?.length) return result
  const explained = result.errors.every(isOfInput) && explain(schema, request.params ?? {})
  const errors = explained ? [explained] : result.errors
  // Relay reports a failure only if the answer has no data at all.
  const hasFailed = request.answer.isOfMutation && result.data && Object.values(result.data).every((of) => of === null)
  return { ...result, ...(hasFailed && { data: null }), errors: errors.map((error) => present(error, request)) }
}

/**
 * Returns whether a response is too long. Fields are checked when they are read; this finds responses that repeat the
 * same field under several names.
 */
const isTooLong = ({ data, errors = [] }: ExecutionResult): boolean =>
  errors.some(({ path, extensions }) => path && extensions.code === TOO_MUCH) ||
  sizeOf([data, errors.map(({ path }) => path)]) > LIMITS.answer

/** Details of requests that Yoga refuses, by message. */
const DETAILS: readonly (readonly [message: RegExp, detail: string])[] = [
  [/^Could not determine what operation/, 'Send the name of one operation of the document as `operationName`.'],
  [/^Expected "(?:variables|extensions)" param/, 'Send `variables` and `extensions` as objects, or leave them out.'],
  [/ from a POST request/, 'Send mutations by POST.'],
  [/^GraphQL only supports GET/, 'Use GET or POST.'],
  [/^Unexpected parameter/, 'Leave it out: a request has `query`, `variables`, `operationName` and `extensions`.'],
  [/"query" param|^Must provide query/, 'Send the document as a text in `query`.'],
]
/** Yoga's code of a request that is none of GraphQL, for which the contract has codes by status. */
const NO_REQUEST = 'BAD_REQUEST'
/** Detail of a refused document. */
const DETAIL = 'Correct the document: GET /graphql in a browser, or an introspection query, shows the schema.'

const detailOf = (message: string): string => DETAILS.find(([of]) => of.test(message))?.[1] ?? DETAIL

type Http = { status: number; spec?: boolean; headers?: Readonly<Record<string, string>> }

/**
 * Returns the public form of an error: the contract's message, and its error body under `extensions`. A request error
 * sets the HTTP status; a field error does not.
 */
function present(error: GraphQLError, { deps, requestId }: GraphQLRequest): GraphQLError {
  const refusal = isRefusal(error)
  const {
    code,
    http,
    detail = detailOf(error.message),
  } = error.extensions as { code?: string; http?: Http; detail?: string }
  const app = refusal ? new AppError(http?.status ?? 400, error.message, { detail }) : toAppError(error)
  if (app.status >= 500) deps.log.error({ requestId, err: app.cause ?? app }, app.message)
  const { message, ...body } = toBody(app, requestId)
  // `spec` returns 200 to clients that accept only `application/json`, as GraphQL over HTTP requires for request
  // errors.
  const whole = { http: http ?? { status: app.status, spec: refusal, headers: app.headers } }
  const extensions = { ...body, ...(refusal && code && code !== NO_REQUEST && { code }), ...(!error.path && whole) }
  const { nodes, source, positions, path } = error
  return new GraphQLError(message, { nodes, source, positions, path, extensions })
}

/** Returns whether GraphQL rejects the input of a procedure rather than the document or its size. */
const isOfInput = (error: GraphQLError) => isRefusal(error) && error.nodes && error.extensions.code !== TOO_MUCH

/** Returns whether GraphQL rejects the client's document. Errors while a field is resolved are different. */
function isRefusal(error: GraphQLError): boolean {
  for (let cause: unknown = error.originalError; cause; cause = (cause as GraphQLError).originalError) {
    if (!(cause instanceof GraphQLError)) return false
  }
  return !error.path || !error.nodes?.every((node) => node.kind === Kind.FIELD)
}

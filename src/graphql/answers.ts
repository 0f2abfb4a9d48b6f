import { type ExecutionResult, GraphQLError, type GraphQLSchema, Kind } from 'graphql'
import { getSSEProcessor, isAsyncIterable, mapAsyncIterator, type Plugin, processRegularResult } from 'graphql-yoga'
import { AppError, toAppError, toBody } from '../errors.ts'
import { sizeOf } from '../lib/page.ts'
import { answerTooLong, LIMITS, TOO_MUCH } from './limits.ts'
import { explain } from './refusals.ts'
import type { GraphQLRequest } from './requests.ts'

/**
 * Errors leave with the contract's messages and fields, whatever they come from. Who accepts nothing that there is gets
 * it as JSON, or as server-sent events where it is a stream. Multipart is for answers in parts, which there are none of.
 */
export const useAnswers = (schema: GraphQLSchema): Plugin<object, GraphQLRequest> => ({
  onResultProcess({ request, result, setResult, resultProcessor, setResultProcessor, serverContext }) {
    const answer = (one: ExecutionResult) => toAnswer(schema, one, serverContext)
    if (isAsyncIterable(result)) {
      if (!resultProcessor) setResultProcessor(getSSEProcessor(), 'text/event-stream')
      setResult(mapAsyncIterator(result, answer))
    } else if (!Array.isArray(result)) {
      const multipart =
        resultProcessor !== processRegularResult && /multipart/i.test(request.headers.get('accept') ?? '')
      if (!resultProcessor || multipart) setResultProcessor(processRegularResult, 'application/json')
      setResult(answer(result))
    }
  },
})

function toAnswer(schema: GraphQLSchema, result: ExecutionResult, request: GraphQLRequest): ExecutionResult {
  request.answer.size = 0
  if (isTooLong(result)) return { errors: [present(answerTooLong(), request)] }
  if (!result.errors?.length) return result
  const explained = result.errors.every(isOfInput) && explain(schema, request.params ?? {})
  const errors = explained ? [explained] : result.errors
  return { ...result, errors: errors.map((error) => present(error, request)) }
}

/** Found out when a field was read for it; or now, where it says the same again and again, by whatever names. */
const isTooLong = ({ data, errors = [] }: ExecutionResult): boolean =>
  errors.some(({ path, extensions }) => path && extensions.code === TOO_MUCH) ||
  sizeOf([data, errors.map(({ path }) => path)]) > LIMITS.answer

type Http = { status: number; spec?: boolean; headers?: Readonly<Record<string, string>> }

/**
 * The error as the caller may see it: the contract's message, and its error body under `extensions`. An error of the
 * whole request sets the HTTP status, one at a field of the answer does not.
 */
function present(error: GraphQLError, { deps, requestId }: GraphQLRequest): GraphQLError {
  const refusal = isRefusal(error)
  const { code, http } = error.extensions as { code?: string; http?: Http }
  const app = refusal ? new AppError(http?.status ?? 400, error.message) : toAppError(error)
  if (app.status >= 500) deps.log.error({ requestId, err: app.cause ?? app }, app.message)
  const { message, ...body } = toBody(app, requestId)
  // `spec` makes it 200 for those who accept `application/json` only: so GraphQL over HTTP wants GraphQL's refusals.
  const whole = { http: http ?? { status: app.status, spec: refusal, headers: app.headers } }
  const extensions = { ...body, ...(refusal && code && { code }), ...(!error.path && whole) }
  const { nodes, source, positions, path } = error
  return new GraphQLError(message, { nodes, source, positions, path, extensions })
}

/** Whether it may be the input of a procedure that GraphQL refuses, and not the document or its size. */
const isOfInput = (error: GraphQLError) => isRefusal(error) && error.nodes && error.extensions.code !== TOO_MUCH

/** Whether GraphQL refuses what the client wrote. What goes wrong at a field of the answer is no refusal. */
function isRefusal(error: GraphQLError): boolean {
  for (let cause: unknown = error.originalError; cause; cause = (cause as GraphQLError).originalError) {
    if (!(cause instanceof GraphQLError)) return false
  }
  return !error.path || !error.nodes?.every((node) => node.kind === Kind.FIELD)
}

import { GraphQLError, Kind } from 'graphql'
import { AppError, toAppError, toBody } from '../errors.ts'
import { type Context, toTRPCError } from '../trpc.ts'

type Http = { status: number; spec?: boolean; headers?: Readonly<Record<string, string>> }

/**
 * An error as the caller sees it: the contract's error body under `extensions`, its messages, and nothing that nobody
 * should see. An error of the request as a whole sets the HTTP status; one at a field of the answer does not.
 */
export function present(error: GraphQLError, { deps, requestId }: Context): GraphQLError {
  const refusal = isRefusal(error)
  const { code, http } = error.extensions as { code?: string; http?: Http }
  const app = refusal ? new AppError(http?.status ?? 400, error.message) : toAppError(error)
  if (app.status >= 500) deps.log.error({ requestId, err: app.cause ?? app }, app.message)
  const { message, ...body } = toBody(app, requestId)
  // `spec`: 200 for clients that accept application/json only, as GraphQL over HTTP wants for GraphQL's own errors.
  const whole: Http = http ?? { status: app.status, spec: refusal, headers: app.headers }
  return new GraphQLError(message, {
    nodes: error.nodes,
    source: error.source,
    positions: error.positions,
    path: error.path,
    extensions: { ...body, code: (refusal && code) || toTRPCError(app).code, ...(!error.path && { http: whole }) },
  })
}

/** Whether GraphQL itself refuses what the client wrote. What goes wrong at a field of the answer is no refusal. */
export function isRefusal(error: GraphQLError): boolean {
  for (let cause: unknown = error.originalError; cause; cause = (cause as GraphQLError).originalError) {
    if (!(cause instanceof GraphQLError)) return false
  }
  return !error.path || !error.nodes?.every((node) => node.kind === Kind.FIELD)
}

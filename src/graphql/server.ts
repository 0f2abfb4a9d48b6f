import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ExecutionResult, GraphQLError, GraphQLSchema } from 'graphql'
import {
  _createLRUCache,
  createYoga,
  isAsyncIterable,
  mapAsyncIterator,
  type Plugin,
} from 'graphql-yoga'
import { AppError, badRequest } from '../errors.ts'
import { readJson } from '../http/body.ts'
import { createCaller } from '../router.ts'
import type { Settings } from '../settings.ts'
import type { Context } from '../trpc.ts'
import { isRefusal, present } from './errors.ts'
import { useLimits } from './limits.ts'
import { explain, type Params } from './refusals.ts'
import { createSchema } from './schema.ts'

type Request = Context & { req: IncomingMessage; params?: Params }

/** How many documents are kept parsed and validated. */
const KEPT = 200

/**
 * The GraphQL face: queries and mutations over GET and POST, subscriptions as server-sent events, and GraphiQL for
 * browsers outside production. Everything but the page of GraphiQL needs a token.
 */
export function createGraphql(settings: Pick<Settings, 'NODE_ENV'>) {
  const schema = createSchema()
  const yoga = createYoga<Request>({
    schema,
    context: async (request) => ({ actor: await request.authenticate(), caller: createCaller(request) }),
    plugins: [useRequests(), useLimits(), useAnswers(schema)],
    parserAndValidationCache: {
      documentCache: _createLRUCache({ max: KEPT }),
      errorCache: NONE,
      validationCache: true,
    },
    graphiql:
      settings.NODE_ENV === 'production' ? false : { title: 'Muster', defaultHeaders: '{"Authorization": "Bearer "}' },
    renderGraphiQL: async (options) => (await import('@graphql-yoga/render-graphiql')).renderGraphiQL(options),
    // The app does these, or they are not wanted.
    cors: false,
    landingPage: false,
    batching: false,
    multipart: false,
    maskedErrors: false,
    maxRequestBodySize: false,
    logging: false,
  })
  return async (context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> => {
    // Proxies would keep back what is meant to stream.
    if (req.headers.accept?.includes('text/event-stream')) res.setHeader('X-Accel-Buffering', 'no')
    await yoga(req, res, { ...context, req })
  }
}

const NONE = { get: () => undefined, set() {} }

/** Who asks comes before what they ask; bodies are read as those of REST. */
const useRequests = (): Plugin<object, Request> => ({
  async onRequestParse({ request, url, serverContext, setRequestParser }) {
    await serverContext.authenticate()
    if (request.method === 'POST') setRequestParser(() => readJson(serverContext.req))
    if (request.method === 'GET') setRequestParser(() => readQuery(url.searchParams))
  },
})

function readQuery(query: URLSearchParams) {
  const json = (name: string) => {
    try {
      return JSON.parse(query.get(name) || 'null')
    } catch {
      throw badRequest(`Invalid JSON in ${name}`)
    }
  }
  return {
    ...(query.get('query') !== null && { query: query.get('query')! }),
    ...(query.get('operationName') && { operationName: query.get('operationName')! }),
    variables: json('variables'),
    extensions: json('extensions'),
  }
}

/** Every error leaves as the contract has it, whatever it comes from. */
const useAnswers = (schema: GraphQLSchema): Plugin<object, Request> => ({
  onResultProcess({ result, setResult, resultProcessor, serverContext }) {
    if (!resultProcessor) throw new AppError(406, 'Not acceptable')
    const answer = (result: ExecutionResult) => presentAll(schema, result, serverContext)
    if (isAsyncIterable(result)) setResult(mapAsyncIterator(result, answer))
    else if (!Array.isArray(result)) setResult(answer(result))
  },
})

function presentAll(schema: GraphQLSchema, result: ExecutionResult, context: Request): ExecutionResult {
  if (!result.errors?.length) return result
  const errors = result.errors as readonly GraphQLError[]
  const explained = !result.data && errors.every(isRefusal) && context.params && explain(schema, context.params)
  return { ...result, errors: (explained ? [explained] : errors).map((error) => present(error, context)) }
}

import type { IncomingMessage, ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import type { DocumentNode } from 'graphql'
import { _createLRUCache, createYoga } from 'graphql-yoga'
import { finish } from '../http/body.ts'
import { compress, headersOf } from '../http/compress.ts'
import { EVENT_STREAM } from '../http/sse.ts'
import { createCaller } from '../router.ts'
import type { Settings } from '../settings.ts'
import type { Context } from '../trpc.ts'
import { useLimits } from './document-limits.ts'
import { graphiqlPage } from './graphiql.ts'
import { type GraphQLRequest, useRequests } from './requests.ts'
import { useResponses } from './responses.ts'
import { schema } from './schema.ts'

/** Maximum number of documents that are kept parsed and validated. */
const documentCache = _createLRUCache<DocumentNode>({ max: 200 })
/** Documents that do not parse are not cached. */
const errorCache = { get: () => undefined, set() {} }

/**
 * Creates the GraphQL API: queries and mutations over GET and POST, subscriptions as server-sent events, and GraphiQL
 * for browsers outside production. Everything but GraphiQL's page needs a token.
 */
export function createGraphql({ NODE_ENV }: Pick<Settings, 'NODE_ENV'>) {
  const yoga = createYoga<GraphQLRequest>({
    schema,
    context: async (request) => ({ actor: await request.authenticate(), caller: createCaller(request) }),
    plugins: [useRequests(), useLimits(), useResponses(schema)],
    parserAndValidationCache: { documentCache, errorCache, validationCache: true },
    graphiql: NODE_ENV !== 'production',
    renderGraphiQL: async () => (await graphiqlPage()).html,
    // Handled elsewhere: by the app, by `useRequests`, by `useResponses`.
    cors: false,
    maxRequestBodySize: false,
    maskedErrors: false,
    logging: false,
    // Disabled.
    batching: false,
    multipart: false,
    landingPage: false,
  })
  return async (context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const isHead = req.method === 'HEAD'
    if (isHead) req.method = 'GET'
    const answer = { size: 0, isOfMutation: false }
    // The whole answer has a turn, not the parts that procedures read.
    const turns = { readInTurn: null, executeInTurn: context.readInTurn }
    const response = await yoga.handleNodeRequestAndResponse(req, res, { ...context, ...turns, req, answer })
    await send(res, response, { isHead, mayShrink: !answer.isOfMutation })
  }
}

/** Error codes of a disconnected client, during a stream or before it. */
const GONE: ReadonlySet<string | undefined> = new Set(['ERR_STREAM_PREMATURE_CLOSE', 'ERR_STREAM_UNABLE_TO_PIPE'])

/** Headers of GraphiQL's page, like those of the reference page (http/docs.ts). */
const pageHeaders = async () => ({
  'Content-Security-Policy': (await graphiqlPage()).policy,
  'Content-Type': 'text/html; charset=utf-8',
  'Cache-Control': 'no-cache',
  'Referrer-Policy': 'no-referrer',
})

/** Sends a response whole, or incrementally for a stream, until its end or until the client disconnects. */
async function send(
  res: ServerResponse,
  response: Response,
  { isHead, mayShrink }: { isHead: boolean; mayShrink: boolean },
): Promise<void> {
  if (!response.body || !response.headers.get('content-type')?.startsWith('text/event-stream')) {
    const headers = Object.fromEntries(response.headers)
    const bytes = Buffer.from(await response.arrayBuffer())
    // The length of a compressed secret would leak information.
    const compressed = mayShrink ? await compress(res, bytes) : { bytes, encoding: null }
    const isPage = response.headers.get('content-type')?.startsWith('text/html')
    res.writeHead(response.status, { ...headers, ...(isPage && (await pageHeaders())), ...headersOf(compressed) })
    return finish(res, compressed.bytes)
  }
  // Yoga's own headers let proxies compress and so buffer the stream, and name an encoding that no standard has.
  res.writeHead(response.status, EVENT_STREAM).flushHeaders()
  if (isHead) {
    await response.body.cancel()
    res.end()
    return
  }
  await pipeline(response.body, res).catch((error: NodeJS.ErrnoException) => {
    if (!GONE.has(error.code)) throw error
  })
}

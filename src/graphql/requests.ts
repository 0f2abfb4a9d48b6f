import type { IncomingMessage } from 'node:http'
import { GraphQLError } from 'graphql'
import type { Plugin } from 'graphql-yoga'
import { badRequest, invalidField } from '../errors.ts'
import { readJson } from '../http/body.ts'
import type { Context } from '../trpc.ts'
import type { Values } from './arguments.ts'
import type { Answer } from './limits.ts'

/**
 * Request as seen by Yoga's plugins; `params` once it is read. For a subscription, `answer` belongs to the next event.
 * The answer of a mutation may show a secret.
 */
export type GraphQLRequest = Context & {
  readonly req: IncomingMessage
  readonly answer: Answer & { isOfMutation: boolean }
  /** Executes a query for the response of the request, see `readInTurn`. */
  readonly executeInTurn: Context['readInTurn']
  readonly params?: { query?: string; operationName?: string | null; variables?: Values | null }
}

/** Authenticates before the query is read. Reads bodies like REST. */
export const useRequests = (): Plugin<object, GraphQLRequest> => ({
  async onRequestParse({ request, url, serverContext, setRequestParser }) {
    await serverContext.authenticate()
    if (request.method === 'POST') setRequestParser(async () => withQuery(await readJson(serverContext.req)))
    if (request.method === 'GET') setRequestParser(() => withQuery(readQuery(url.searchParams)))
  },
})

/** Throws the error for a request without a document, after which Apollo's clients send the document itself. */
function withQuery<Params extends { extensions?: unknown; operationName?: unknown }>(params: Params): Params {
  // Some clients send an empty name for none.
  if ('query' in params) return params.operationName === '' ? { ...params, operationName: null } : params
  const { persistedQuery = null } = (params.extensions ?? {}) as { persistedQuery?: unknown }
  if (persistedQuery !== null) {
    const detail = 'Send the document itself as `query`.'
    const extensions = { code: 'PERSISTED_QUERY_NOT_SUPPORTED', detail, http: { status: 200 } }
    throw new GraphQLError('PersistedQueryNotSupported', { extensions })
  }
  throw badRequest('Missing required field: query')
}

function readQuery(query: URLSearchParams) {
  const [text, operationName] = [query.get('query'), query.get('operationName')]
  return {
    ...(text !== null && { query: text }),
    ...(operationName && { operationName }),
    variables: readJsonIn(query, 'variables'),
    extensions: readJsonIn(query, 'extensions'),
  }
}

function readJsonIn(query: URLSearchParams, name: string) {
  try {
    return JSON.parse(query.get(name) || 'null')
  } catch {
    throw invalidField(name, 'JSON')
  }
}

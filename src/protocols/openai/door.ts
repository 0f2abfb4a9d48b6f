import type { IncomingMessage, ServerResponse } from 'node:http'
import { methodNotAllowed, noSuchPath, toAppError } from '../../errors.ts'
import type { Context } from '../../trpc.ts'
import { decodePath } from '../shared/enter.ts'
import { complete } from './chat.ts'
import { sendOpenAIError } from './errors.ts'
import { getModel, listModels } from './models.ts'
import { cancelResponse, createResponse, deleteResponse, getResponse, listInput } from './responses.ts'

type Handler = (context: Context, req: IncomingMessage, res: ServerResponse, id: string) => Promise<void>

const ROUTES: readonly (readonly [path: RegExp, handlers: Readonly<Record<string, Handler>>])[] = [
  [/^models$/, { GET: (context, _, res) => listModels(context, res) }],
  [/^models\/(.+)$/, { GET: (context, _, res, id) => getModel(context, res, id) }],
  [/^chat\/completions$/, { POST: complete }],
  [/^responses$/, { POST: createResponse }],
  [/^responses\/([^/]+)$/, { GET: getResponse, DELETE: deleteResponse }],
  [/^responses\/([^/]+)\/cancel$/, { POST: cancelResponse }],
  [/^responses\/([^/]+)\/input_items$/, { GET: listInput }],
]

/** Answers the requests of OpenAI's clients under `/openai/v1` (contract-2.md section 6.2), errors in their form too. */
export async function handle(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  try {
    await answer(context, req, res)
  } catch (thrown) {
    const error = toAppError(thrown)
    const { requestId, deps } = context
    if (error.status >= 500 && error.cause) deps.log.error({ requestId, err: error.cause }, error.message)
    if (res.headersSent) res.destroy()
    else sendOpenAIError(res, error)
  }
}

async function answer(context: Context, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const path =
    (req.url ?? '')
      .split('?', 1)[0]
      ?.replace(/^\/openai\/v1\/?/, '')
      .replace(/\/$/, '') ?? ''
  const method = req.method === 'HEAD' ? 'GET' : (req.method ?? '')
  for (const [pattern, handlers] of ROUTES) {
    const found = pattern.exec(path)
    if (!found) continue
    const handler = handlers[method]
    if (!handler) throw methodNotAllowed(Object.keys(handlers))
    return handler(context, req, res, decodePath(found[1] ?? ''))
  }
  throw noSuchPath()
}

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Actor } from '../../auth/actor.ts'
import { toAppError } from '../../errors.ts'
import { report } from '../../http/log.ts'
import type { Context } from '../../trpc.ts'
import type { RouteMatch } from '../doors.ts'
import { enter } from '../shared/enter.ts'
import { complete } from './chat.ts'
import { sendOpenAIError } from './errors.ts'
import { getModel, listModels } from './models.ts'
import { cancelResponse, createResponse, deleteResponse, getResponse, listInput } from './responses.ts'

/** A request of a client of OpenAI, with the id in its path. */
export type OpenAIRequest = { context: Context; actor: Actor; req: IncomingMessage; res: ServerResponse; id: string }

const HANDLERS: Readonly<Record<string, (request: OpenAIRequest) => Promise<void>>> = {
  'GET /openai/v1/models': listModels,
  'GET /openai/v1/models/{model}': getModel,
  'POST /openai/v1/chat/completions': complete,
  'POST /openai/v1/responses': createResponse,
  'GET /openai/v1/responses/{id}': getResponse,
  'DELETE /openai/v1/responses/{id}': deleteResponse,
  'POST /openai/v1/responses/{id}/cancel': cancelResponse,
  'GET /openai/v1/responses/{id}/input_items': listInput,
}

/**
 * Answers the requests of OpenAI's clients under `/openai/v1` (contract-2.md section 6.2), errors in their form too.
 */
export async function handle(
  context: Context,
  req: IncomingMessage,
  res: ServerResponse,
  match: RouteMatch,
): Promise<void> {
  try {
    const actor = await enter(context, req, match)
    const { route, parameters } = match
    const method = req.method === 'HEAD' ? 'GET' : req.method
    await HANDLERS[`${method} ${route.path}`]!({ context, actor, req, res, id: parameters[0] ?? '' })
  } catch (thrown) {
    const error = toAppError(thrown)
    report(context.deps, error, context.requestId)
    if (res.headersSent) res.destroy()
    else sendOpenAIError(res, error)
  }
}

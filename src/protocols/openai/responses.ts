import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Actor, isAdmin, permit } from '../../auth/actor.ts'
import { audit } from '../../auth/audit.ts'
import type { Prisma } from '../../db/client.ts'
import type { Deps } from '../../deps.ts'
import { badRequest, cancelled, chatFailed } from '../../errors.ts'
import type { ExecutionRow } from '../../executions/engine/events/events.ts'
import type { Overrides } from '../../executions/engine/queue/requests.ts'
import { cancel, cancelIfActive, find } from '../../executions/service.ts'
import { sendJson } from '../../http/body.ts'
import type { Context } from '../../trpc.ts'
import type { ErrorCode } from '../../wire.ts'
import { continueOrStart } from '../shared/begin.ts'
import { nameRun, readWhole } from '../shared/enter.ts'
import { frame, reported, writeFrames } from '../shared/frames.ts'
import { readParts } from '../shared/run-parts.ts'
import { answerWhole } from '../shared/unanswered.ts'
import type { OpenAIRequest } from './door.ts'
import { toErrorEvent, toOpenAIError } from './errors.ts'
import { findResponse } from './find-response.ts'
import { echoOf, type ResponseRef, toResponseId } from './response.ts'
import { readResponseRequest } from './response-request.ts'
import { followResponse, readResponse } from './response-stream.ts'
import { createFilter, isStrict, type Sent, withoutOwn } from './strict-clients.ts'

/** POST /openai/v1/responses (contract-2.md section 6.2). Throws the errors of `startRun`. */
export async function createResponse({ context, actor, req, res }: OpenAIRequest): Promise<void> {
  const { body, request } = await readResponseRequest({ context, actor, req })
  const { deps } = context
  const ref = await continueOrStart(context, actor, request)
  nameRun(res, ref.row, request.idempotency)
  if (body.stream) return streamResponse({ context, actor, req, res }, ref, 0)
  const ended = await answerWhole(context, actor, ref, async () => {
    if (!body.background) await waitFor(context, actor, ref)
    return find(actor, deps, ref.row.id)
  })
  if (!ended) return
  const { response, state } = await readResponse(deps, { row: ended, after: ref.after })
  if (!body.background && state?.error) {
    if (ended.status === 'cancelled') throw cancelled(ended.id)
    const code = state.error.code as ErrorCode
    throw chatFailed({ code, detail: ended.error ?? state.error.message, executionId: ended.id })
  }
  sendResponse(req, res, response)
}

/** Sends a response, without the service's own items if its client refuses them. */
function sendResponse(req: IncomingMessage, res: ServerResponse, response: Sent): void {
  sendJson(res, 200, isStrict(req) ? withoutOwn(response) : response)
}

/** Waits until a response has ended, or its caller has gone. */
async function waitFor(context: Context, actor: Actor, ref: ResponseRef): Promise<void> {
  for await (const _ of followResponse(context, actor, ref));
}

/** GET /openai/v1/responses/{id}, with `stream=true` as events, those after `starting_after` if it is given. */
export async function getResponse({ context, actor, req, res, id }: OpenAIRequest): Promise<void> {
  const { searchParams } = new URL(req.url ?? '/', 'http://localhost')
  if (searchParams.get('stream') !== 'true') {
    const read = async () => (await readResponse(context.deps, await findResponse(actor, context.deps, id))).response
    return sendResponse(req, res, await readWhole(context, actor, read))
  }
  const ref = await findResponse(actor, context.deps, id)
  const after = searchParams.get('starting_after') ?? '0'
  if (!/^\d{1,15}$/.test(after)) {
    throw badRequest('Invalid value for parameter: starting_after. Expected a sequence_number', {
      detail: 'Send the `sequence_number` of the last event that you have.',
    })
  }
  await streamResponse({ context, actor, req, res }, ref, Number(after))
}

/** POST /openai/v1/responses/{id}/cancel. Throws 400 for a response that has ended otherwise. */
export async function cancelResponse({ context, actor, req, res, id }: OpenAIRequest): Promise<void> {
  const { deps } = context
  const { row, after } = await findResponse(actor, deps, id)
  await cancel(actor, deps, row.id, true)
  const { response } = await readResponse(deps, { row: await find(actor, deps, row.id), after })
  sendResponse(req, res, response)
}

/**
 * DELETE /openai/v1/responses/{id}: cancels its run if that is active. The response is not found from then on; the
 * execution and the chat stay.
 */
export async function deleteResponse({ context, actor, res, id }: OpenAIRequest): Promise<void> {
  const { deps } = context
  const ref = await findResponse(actor, deps, id)
  const row = permit(ref.row, ref.row.userId === actor.userId || isAdmin(actor))
  await cancelIfActive(actor, deps, row.id)
  const overrides = { ...(ref.row.overrides as Overrides), echo: { ...echoOf(ref.row), isDeleted: true } }
  const data = { overrides: overrides as object as Prisma.InputJsonObject }
  await deps.db.$transaction(async (tx) => {
    await tx.execution.updateMany({ where: { id: row.id }, data })
    await audit(tx, actor, 'response.delete', row.id, deps.clock.now())
  })
  sendJson(res, 200, { id: toResponseId(ref), object: 'response', deleted: true })
}

/** GET /openai/v1/responses/{id}/input_items: the message that the run answers, or the results that continued it. */
export async function listInput({ context, actor, res, id }: OpenAIRequest): Promise<void> {
  const { row, after } = await findResponse(actor, context.deps, id)
  const message = {
    id: `msg_${row.id}_input`,
    type: 'message',
    role: 'user',
    status: 'completed',
    content: [{ type: 'input_text', text: row.message }],
  }
  const data = after ? await resultsAfter(context.deps, row, after) : [message]
  const [first_id = null, last_id = null] = [data[0]?.id, data.at(-1)?.id]
  sendJson(res, 200, { object: 'list', data, first_id, last_id, has_more: false })
}

/** Lists the results of the client's tools that came right after an event of a run. */
async function resultsAfter(deps: Deps, row: ExecutionRow, after: number) {
  const items: { id: string; type: string; call_id: string; output: string; status: string }[] = []
  const custom = new Set<string>()
  for await (const part of readParts(deps, row)) {
    if (part.type === 'tool-call' && part.isCustom) custom.add(part.id)
    if (part.seq <= after) continue
    if (part.type !== 'tool-result') return items
    const { id: call_id, content: output } = part
    const type = custom.has(call_id) ? 'custom_tool_call_output' : 'function_call_output'
    items.push({ id: `fco_${call_id}`, type, call_id, output, status: 'completed' })
  }
  return items
}

async function streamResponse(
  { context, actor, req, res }: Omit<OpenAIRequest, 'id'>,
  ref: ResponseRef,
  after: number,
): Promise<void> {
  const filter = isStrict(req) ? createFilter() : null
  let last = after
  async function* toFrames(): AsyncGenerator<string> {
    for await (const events of followResponse(context, actor, ref)) {
      const shown = filter ? events.flatMap(filter) : events
      const later = shown.filter(({ sequence_number: number }) => number > after)
      last = later.at(-1)?.sequence_number ?? last
      yield later.map((event) => frame(event, event.type)).join('')
    }
    yield frame('[DONE]')
  }
  await writeFrames(res, toFrames(), {
    onError: reported(context, (error) => {
      const event = toErrorEvent(toOpenAIError(error).error)
      // OpenAI's library for .NET reads numbers of 32 bits.
      return frame({ ...event, sequence_number: last + 1 }, 'error')
    }),
  })
}

import { asObject, asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { ModelError, ReportedError } from './model-errors.ts'
import { refuseChat } from './other-apis.ts'
import type { Emit, ProviderEvents } from './provider-events.ts'
import { errorIn, withStatus } from './reported-errors.ts'
import { usageOfReport } from './reported-usage.ts'
import { createResponseItems, isItem, textOf } from './responses-items.ts'

/**
 * Reads the events of OpenAI's Responses API. Leaves out items and events that are neither text, reasoning nor calls.
 */
export function createResponsesEvents(emit: Emit): ProviderEvents {
  const items = createResponseItems(emit)
  let isCreated = false
  let isWhole = false

  function read(event: Fields): void {
    const error =
      event.type === 'response.error'
        ? new ReportedError(withStatus({ error: event.error ?? event.message }))
        : errorIn(event)
    // The `error` of a complete response is null or an error of its own.
    if (error) throw error
    refuseChat(event, 'OPENAI_RESPONSES_BASE_URL')
    const response = asObject(event.response)
    switch (event.type) {
      case 'response.created':
        create(response)
        return
      case 'response.completed':
      case 'response.done':
        readResponse({ usage: event.usage, ...response }, false)
        return
      case 'response.incomplete':
        readResponse(response, true)
        return
      case 'response.failed':
        readResponse({ ...response, status: 'failed' }, false)
        return
      case 'response.cancelled':
      case 'response.canceled':
        readResponse({ ...response, status: 'cancelled' }, false)
        return
    }
    if (event.object === 'response' && Array.isArray(event.output)) readResponse(event, false)
    else readOfItem(event)
  }

  function create({ id, created_at: at, model }: Fields): void {
    isCreated = true
    const created_at = typeof at === 'number' ? at : 0
    emit({ type: 'response.created', response: { id: asText(id), created_at, model: asText(model) } })
  }

  function readResponse(response: Fields, isIncomplete: boolean): void {
    const { status, error, usage } = response
    const hasFailed = isObject(error) || asText(error) !== '' || status === 'failed' || status === 'cancelled'
    // The tokens of an answer that fails count, too.
    if (hasFailed && isObject(usage)) emit({ type: 'ping', usageMetadata: usage })
    if (isObject(error) || asText(error)) throw new ReportedError(withStatus({ error }))
    if (status === 'failed' || status === 'cancelled') {
      throw new ModelError(`The model broke off its reply (finish reason: ${status})`, 'broken_off')
    }
    end(response, isIncomplete || status === 'incomplete')
  }

  function end(response: Fields, isIncomplete: boolean): void {
    items.finishAll(response, isIncomplete)
    isWhole = true
    const reason = asText(asObject(response.incomplete_details).reason) || (isIncomplete ? 'incomplete' : '')
    const type = reason ? 'response.incomplete' : 'response.completed'
    const incomplete_details = reason ? { reason } : null
    emit({ type, response: { incomplete_details, usage: usageOf(response.usage) } })
  }

  function readOfItem(event: Fields): void {
    const delta = asText(event.delta)
    switch (event.type) {
      case 'response.output_item.added':
      case 'response.output_item.done': {
        const given = asObject(event.item)
        if (!isItem(given)) {
          emit({ type: 'ping' })
          return
        }
        const item = items.find(event, given.type, given)
        if (event.type === 'response.output_item.done') items.finish(item, given)
        return
      }
      case 'response.output_text.delta':
        items.addText(items.find(event, 'message'), delta)
        return
      case 'response.refusal.delta':
        items.addRefusal(items.find(event, 'message'), delta)
        return
      case 'response.output_text.done':
      case 'response.content_part.done': {
        const text = asText(event.text) || textOf([event.part])
        if (text && asObject(event.part).type !== 'reasoning_text') items.addRest(items.find(event, 'message'), text)
        else emit(ALIVE)
        return
      }
      case 'response.function_call_arguments.delta':
        items.addArguments(items.find(event, 'function_call'), delta)
        return
      case 'response.function_call_arguments.done':
        items.readCall(items.find(event, 'function_call'), event)
        return
      case 'response.reasoning_summary_text.delta':
      case 'response.reasoning_text.delta':
      case 'response.reasoning.delta': {
        const summary = typeof event.summary_index === 'number' ? event.summary_index : 0
        items.addReasoning(items.find(event, 'reasoning'), delta, Math.max(0, summary))
        return
      }
      default:
        emit(ALIVE)
    }
  }

  return {
    read,
    keepAlive: () => emit(ALIVE),
    done() {
      if (items.size) end({}, false)
    },
    close() {},
    get isBegun() {
      return isCreated || items.isBegun || isWhole
    },
    get isSettled() {
      return isWhole
    },
    get isWhole() {
      return isWhole
    },
  }
}

/** Event after which the provider package passes on what follows, before the answer has begun. */
const ALIVE: Fields = { type: 'response.in_progress', response: { id: '', created_at: 0, model: '' } }

/**
 * Returns usage in the package's format, also if a server uses the names of chat completions; undefined if not
 * reported.
 */
function usageOf(value: unknown): Fields | undefined {
  if (!isObject(value)) return undefined
  const { inputTokens, outputTokens } = usageOfReport(value)
  if (inputTokens.total === undefined || outputTokens.total === undefined) return undefined
  const { cacheRead: cached_tokens } = inputTokens
  const { reasoning: reasoning_tokens } = outputTokens
  return {
    input_tokens: inputTokens.total,
    output_tokens: outputTokens.total,
    ...(cached_tokens !== undefined && { input_tokens_details: { cached_tokens } }),
    ...(reasoning_tokens !== undefined && { output_tokens_details: { reasoning_tokens } }),
  }
}

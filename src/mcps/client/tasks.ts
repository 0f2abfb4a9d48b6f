import { setTimeout as sleep } from 'node:timers/promises'
import type { CallToolResult, Client } from '@modelcontextprotocol/client'
import { z } from 'zod'
import { BadAnswer } from '../../lib/net/safe-fetch.ts'
import { asObject, asText, type Fields } from '../../lib/unknown.ts'
import { LOST_TASK } from './reasons.ts'
import { serverMessage } from './server-errors.ts'
import { isServerError, requestWithSignal } from './transport.ts'

// Tools that only run as tasks (revision 2025-11-25): the call begins one, whose result is fetched once it has ended.

/** Time for which a server is asked to keep the result of a task (ms). */
const TTL = 60 * 60 * 1000
/** Minimum, maximum and default delay between two questions about a task (ms). */
const POLL_AFTER = { least: 100, most: 15_000, usual: 1_000 }
/** Maximum number of consecutive questions without an answer. */
const MAX_FAILURES = 3
/** Maximum time for a server to accept the cancellation of a task (ms). */
const CANCEL_TIMEOUT = 2_000

const AnyResult = z.looseObject({})

/**
 * Calls a tool as a task and waits for its result. A task that is working counts as progress. Cancels the task on the
 * server when the signal aborts. Once the task has begun, throws only a {@link BadAnswer}, after which a call is not
 * repeated.
 */
export async function callAsTask(
  client: Client,
  params: { name: string; arguments: Fields },
  onprogress: () => void,
  signal: AbortSignal,
): Promise<CallToolResult> {
  const ask = (method: string, given: Fields, until = signal) =>
    requestWithSignal(until, (options) =>
      client.request({ method, params: given }, AnyResult, { ...options, ...(until === signal && { onprogress }) }),
    )
  const created = await ask('tools/call', { ...params, task: { ttl: TTL } })
  const task = asObject(created.task)
  const taskId = asText(task.taskId)
  if (!taskId) return { content: [], ...created }
  const cancel = () => void ask('tasks/cancel', { taskId }, AbortSignal.timeout(CANCEL_TIMEOUT)).catch(() => {})
  signal.addEventListener('abort', cancel)
  try {
    await ended(task, () => ask('tasks/get', { taskId }), onprogress, signal)
    return { content: [], ...(await ask('tasks/result', { taskId })) }
  } catch (error) {
    signal.throwIfAborted()
    if (!isServerError(error)) throw new BadAnswer(LOST_TASK)
    return { content: [{ type: 'text', text: `The task of the tool failed: ${serverMessage(error)}` }], isError: true }
  } finally {
    signal.removeEventListener('abort', cancel)
  }
}

/** Waits until a task has ended, or waits for an answer of this service, which it gets with its result. */
async function ended(begun: Fields, get: () => Promise<Fields>, onprogress: () => void, signal: AbortSignal) {
  const { least, most, usual } = POLL_AFTER
  let task = begun
  for (let failures = 0; task.status === 'working'; ) {
    const delay = typeof task.pollInterval === 'number' ? task.pollInterval : usual
    await sleep(Math.min(Math.max(delay, least), most), undefined, { signal })
    try {
      task = await get()
      failures = 0
      onprogress()
    } catch (error) {
      if (signal.aborted || isServerError(error) || ++failures === MAX_FAILURES) throw error
    }
  }
}

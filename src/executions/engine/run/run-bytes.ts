import { AppError } from '../../../errors.ts'
import { createRegistry } from '../../../lib/registry.ts'
import type { MessageData } from '../events/events.ts'

/** Amount of text that one run holds in this process. */
export type RunText = { readonly id: number; size: number; readonly controller: AbortController }

export type RunBytes = {
  open(controller: AbortController): RunText
  /** Counts a message of a run. Over the limit, stops the run of this process with the most text. */
  add(text: RunText, data: MessageData): void
  close(text: RunText): void
}

const MIB = 1024 * 1024

/** Limit without a setting, and the least in a small container (bytes). */
const MAX_LIMIT = 512 * MIB
const MIN_LIMIT = 8 * MIB

/**
 * Returns the limit of a process whose container has a limit of memory (bytes), 0 for none. Runs that are written fast
 * take about ten times their text, with garbage, and the kernel ends a process that takes more than its container has.
 */
export const limitWithin = (memory: number): number =>
  Math.max(MIN_LIMIT, Math.min(MAX_LIMIT, (memory || Infinity) / 32))

const tooMuch = (size: number, limit: number) =>
  new AppError(413, 'Run too large', {
    code: 'too_large',
    detail:
      `The runs of this server hold more than ${limit} bytes of text (MAX_RUN_BYTES), and this run has the most: ` +
      `${size} bytes. Ask for shorter replies, or raise the limit.`,
  })

/**
 * Limits the text that all runs of this process hold in memory, such as replies and tool results. A character counts as
 * one byte, as V8 stores most text. A stopped run fails with code `too_large`.
 */
export function createRunBytes(limit = limitWithin(process.constrainedMemory())): RunBytes {
  const texts = createRegistry<number, RunText>()
  let opened = 0
  let total = 0

  function stopLargest(): void {
    let largest: RunText | undefined
    for (const text of texts.values()) if (text.size > (largest?.size ?? 0)) largest = text
    if (!largest) return
    // A stopped run no longer counts, so that the next message of another run does not stop that one too.
    close(largest)
    largest.controller.abort(tooMuch(largest.size, limit))
  }

  function close(text: RunText): void {
    if (texts.delete(text.id)) total -= text.size
  }

  return {
    close,
    open(controller) {
      const text: RunText = { id: opened++, size: 0, controller }
      texts.set(text.id, text)
      return text
    },
    add(text, data) {
      const size = sizeOf(data)
      if (!size || !texts.has(text.id)) return
      text.size += size
      total += size
      if (total > limit) stopLargest()
    },
  }
}

/**
 * Returns the size of a message. The complete message of an assistant counts nothing, because it repeats its deltas.
 */
const sizeOf = (data: MessageData): number => {
  if (data.messageType === 'stream_event') return data.delta.text.length
  return data.messageType === 'tool_result' ? data.content.length : 0
}

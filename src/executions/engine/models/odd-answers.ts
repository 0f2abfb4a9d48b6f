import type { ParseError } from 'eventsource-parser'
import { tryParseExact } from '../../../lib/exact-json.ts'
import { MAX_EVENT, refuseLong } from './answer-limits.ts'
import { isPage, titleOf } from './error-bodies.ts'
import { ModelError, ReportedError } from './model-errors.ts'

// Answers of model servers that violate their protocol.

/**
 * Reads a line that violates the event stream format: llama.cpp's `error: {…}`, chunks without `data:`, and `data` in
 * another spelling. Returns its error or its data, or null for any other line.
 */
export function readOddLine({ type, field, value, line }: ParseError): { error: string } | { data: string } | null {
  if (type === 'max-buffer-size-exceeded') refuseLong()
  if (type !== 'unknown-field') return null
  if (field === 'error' && value) return { error: value }
  if (/^\s*data$/i.test(field ?? '')) return { data: value?.trim() ?? '' }
  return line?.startsWith('{') ? { data: line } : null
}

/** Collects the lines of a JSON value that a server writes over several lines behind one `data:`. */
export function createRestOfData() {
  let lines: string[] = []
  /** Their length (characters), infinite if there are too many to keep. */
  let length = 0
  return {
    /** Keeps a line that is no field of an event. */
    add({ type, line }: ParseError): void {
      if (type !== 'unknown-field' || line === undefined) return
      length += line.length + 1
      if (length <= MAX_EVENT && lines.push(line) <= MAX_LINES) return
      lines = []
      length = Number.POSITIVE_INFINITY
    },
    /** Returns the data of an event, with the lines behind it if they complete it. */
    complete(data: string): string {
      if (!length) return data
      const whole = [data, ...lines].join('\n')
      lines = []
      length = 0
      return tryParseExact(data) === undefined && tryParseExact(whole) !== undefined ? whole : data
    },
  }
}

/** Maximum number of lines that are kept for one value. */
const MAX_LINES = 10_000

/** Fields of an event stream, one of which may have been cut off. */
const FIELDS = ['data', 'event', 'id', 'retry']

/** Returns the failure for an answer outside the protocol, from its first characters. */
export function oddAnswer(head: string): Error {
  const text = head.trim()
  if (!text) return new ModelError('The model server sent an empty answer', 'broken_off')
  if (isPage(text)) {
    const title = titleOf(text)
    const page = title ? `a web page titled "${title}"` : 'a web page'
    return new ModelError(`The model server answered with ${page} (HTML) instead of a model's answer`, 'unreadable')
  }
  if (/\ufffd[^\ufffd]*\ufffd|[\x00-\x08]/.test(text))
    return new ModelError('The model server sent data that is not text', 'unreadable')
  if (/^[[{]/.test(text))
    return new ModelError("The model server answered with JSON that is not a model's answer", 'unreadable')
  if (/^(?:data|event|id|retry)?:/m.test(text) || FIELDS.some((field) => field.startsWith(text)))
    return new ModelError('The model server ended its stream without an answer', 'broken_off')
  return new ReportedError(text)
}

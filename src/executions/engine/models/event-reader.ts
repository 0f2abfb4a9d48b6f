import { createParser } from 'eventsource-parser'
import { splitData } from '../../../lib/event-data.ts'
import { tryParseExact } from '../../../lib/exact-json.ts'
import { asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { MAX_EVENT, MAX_HEAD, refuseLong } from './answer-limits.ts'
import { escapeControls } from './call-inputs.ts'
import { ModelError, ReportedError } from './model-errors.ts'
import { oddAnswer, readOddLine } from './odd-answers.ts'
import { unwrapped } from './other-apis.ts'
import type { ProviderEvents } from './provider-events.ts'
import { withStatus } from './reported-errors.ts'

/** Reads the text of an answer: an event stream, or the JSON or web page that servers send instead. */
export function createEventReader(events: ProviderEvents) {
  const onLife = () => events.keepAlive()
  let head = ''
  let body: string[] | null = null
  let length = 0
  let isStream = false
  const parser = createParser({
    maxBufferSize: MAX_EVENT,
    onEvent: ({ data, event }) => readData(data, event),
    onComment: onLife,
    onError: (parseError) => {
      const found = readOddLine(parseError)
      if (!found) return
      if ('error' in found) fail(found.error)
      else readData(found.data, undefined)
    },
  })

  function fail(error: string): void {
    if (!events.isSettled) throw new ReportedError(withStatus({ error: tryParseExact(error) ?? error }))
  }

  function readData(data: string, event: string | undefined): void {
    if (events.isWhole) return
    if (!data.trim()) {
      onLife()
      return
    }
    if (data.trim() === '[DONE]') {
      if (!events.isSettled) events.done()
      return
    }
    const value = tryParseExact(data) ?? tryParseExact(escapeControls(data))
    if (value === undefined) {
      const pieces = splitData(data)
      if (pieces) {
        for (const piece of pieces) readData(piece, pieces.length > 1 ? undefined : event)
        return
      }
      if (events.isSettled) return
      if (event === 'error') fail(data)
      else if (/^\s*[[{"]/.test(data))
        throw new ModelError('The model server sent data that cannot be read', 'unreadable')
      // Plain texts keep the connection alive.
      else onLife()
      return
    }
    if (event === 'error' && !isObject(value)) fail(asText(value) || data)
    readValue(value, event)
  }

  function readValue(value: unknown, event: string | undefined): void {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (events.isWhole) return
      if (!isObject(one)) onLife()
      // Without a name of its own, an event is called `message`.
      else readEvent(typeof one.type === 'string' || !event || event === 'message' ? one : { ...one, type: event })
    }
  }

  function readEvent(value: Fields): void {
    const { isSettled } = events
    try {
      events.read(unwrapped(value))
    } catch (error) {
      // Errors after the finish reason are ignored.
      if (!isSettled) throw error
    }
  }

  return {
    get isSettled() {
      return events.isSettled
    },
    get isWhole() {
      return events.isWhole
    },
    feed(text: string): void {
      if (isStream) {
        if (!events.isBegun && head.length < MAX_HEAD) head = `${head}${text}`.slice(0, MAX_HEAD)
        parser.feed(text)
        return
      }
      if (!body) {
        const first = /\S/.exec(text)?.[0]
        // Collecting blanks would read all of them again with each piece.
        if (!first) {
          onLife()
          return
        }
        const begun = text.replace(/^\ufeff/, '')
        head = begun.slice(0, MAX_HEAD)
        if (first !== '{' && first !== '[' && first !== '<') {
          isStream = true
          parser.feed(begun)
          return
        }
        body = [begun]
      } else {
        body.push(text)
        if (head.length < MAX_HEAD) head = `${head}${text}`.slice(0, MAX_HEAD)
      }
      length += text.length
      if (length > MAX_EVENT) refuseLong()
    },
    end(): void {
      const whole = body?.join('') ?? ''
      if (isStream) closeLast()
      else if (whole && !whole.trimStart().startsWith('<')) {
        const value = tryParseExact(whole) ?? tryParseExact(escapeControls(whole))
        if (value !== undefined) readValue(value, undefined)
        else for (const line of whole.split('\n')) if (line.trim()) readData(line, undefined)
      }
      if (!events.isBegun && !events.isSettled) throw oddAnswer(head)
    },
    close: () => events.close(),
  }

  function closeLast(): void {
    try {
      parser.feed('\n\n')
    } catch (error) {
      const isCutOff = error instanceof ModelError && error.kind === 'unreadable'
      if (!isCutOff) throw error
    }
  }
}

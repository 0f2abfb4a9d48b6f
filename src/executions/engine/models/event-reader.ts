import { createParser } from 'eventsource-parser'
import { splitData } from '../../../lib/event-data.ts'
import { tryParseExact } from '../../../lib/exact-json.ts'
import { asText, type Fields, isObject } from '../../../lib/unknown.ts'
import { MAX_EVENT, MAX_HEAD, refuseLong } from './answer-limits.ts'
import { escapeControls } from './call-inputs.ts'
import { ModelError, ReportedError } from './model-errors.ts'
import { createRestOfData, oddAnswer, readOddLine } from './odd-answers.ts'
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
  const rest = createRestOfData()
  const parser = createParser({
    maxBufferSize: MAX_EVENT,
    onEvent: ({ data, event }) => readData(rest.complete(data), event),
    onComment: onLife,
    onError: (parseError) => {
      const found = readOddLine(parseError)
      if (!found) rest.add(parseError)
      else if ('error' in found) fail(found.error)
      else readData(found.data, undefined)
    },
  })

  function fail(error: string): void {
    if (!events.isSettled) throw new ReportedError(withStatus({ error: tryParseExact(error) ?? error }))
  }

  function readData(data: string, event: string | undefined): void {
    if (events.isWhole) return
    const text = data.trim()
    if (text === '') onLife()
    else if (text !== '[DONE]') readContent(data, event)
    else if (!events.isSettled) events.done()
  }

  function readContent(data: string, event: string | undefined): void {
    const given = readJson(data)
    // Some servers encode the JSON of an event twice.
    const value = typeof given === 'string' && /^\s*[[{]/.test(given) ? (readJson(given) ?? given) : given
    if (event === 'error' && value !== undefined && !isObject(value)) fail(asText(value) || data)
    if (value === undefined) readOther(data, event)
    else readValue(value, event)
  }

  /** Reads data that is not one JSON value: several of them, an error, or a text, which keeps the connection alive. */
  function readOther(data: string, event: string | undefined): void {
    const pieces = splitData(data)
    for (const piece of pieces ?? []) readData(piece, pieces?.length === 1 ? event : undefined)
    if (pieces || events.isSettled) return
    if (event === 'error') fail(data)
    else if (!/^\s*[[{"]/.test(data)) onLife()
    else throw new ModelError('The model server sent data that cannot be read', 'unreadable')
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
        if (!events.isBegun) addToHead(text)
        parser.feed(text)
      } else if (body) {
        addToHead(text)
        addToBody(body, text)
      } else begin(text)
    },
    end(): void {
      if (isStream) closeLast()
      else readWhole(body?.join('') ?? '')
      if (!events.isBegun && !events.isSettled) throw oddAnswer(head)
    },
    close: () => events.close(),
  }

  /** Decides by the first character of an answer whether it is a stream. */
  function begin(text: string): void {
    const first = /\S/.exec(text)?.[0]
    // Collecting blanks would read all of them again with each piece.
    if (!first) {
      onLife()
      return
    }
    const begun = text.replace(/^\ufeff/, '')
    head = begun.slice(0, MAX_HEAD)
    isStream = !/[{[<]/.test(first)
    if (isStream) parser.feed(begun)
    else {
      body = []
      addToBody(body, begun)
    }
  }

  function addToHead(text: string): void {
    if (head.length < MAX_HEAD) head = `${head}${text}`.slice(0, MAX_HEAD)
  }

  function addToBody(pieces: string[], text: string): void {
    pieces.push(text)
    length += text.length
    if (length > MAX_EVENT) refuseLong()
  }

  /** Reads an answer that is no stream: one JSON value, or several. */
  function readWhole(text: string): void {
    if (!text || text.trimStart().startsWith('<')) return
    const value = readJson(text)
    if (value !== undefined) readValue(value, undefined)
    else for (const piece of splitData(text) ?? text.split('\n')) if (piece.trim()) readData(piece, undefined)
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

/** Reads JSON, also with control characters that should be escaped. Returns undefined for other data. */
const readJson = (data: string): unknown => tryParseExact(data) ?? tryParseExact(escapeControls(data))

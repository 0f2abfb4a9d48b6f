import { StringDecoder } from 'node:string_decoder'
import { JSONParseError } from '@ai-sdk/provider'
import { createParser, type EventSourceParser, type ParseError } from 'eventsource-parser'
import { splitData } from '../../../lib/event-data.ts'
import { parseExact, tryParseExact } from '../../../lib/exact-json.ts'
import { isObject } from '../../../lib/unknown.ts'
import { MAX_EVENT, MAX_HEAD, refuseLong } from './answer-limits.ts'
import { escapeControls } from './call-inputs.ts'
import { type ChatReply, createChatReply, endReply, isSettled, type ReplyOptions, readChunk } from './chat-reply.ts'
import { readErrorBody } from './error-bodies.ts'
import { createRestOfData, oddAnswer, readOddLine } from './odd-answers.ts'
import type { Reading } from './post.ts'
import type { Part } from './text-model.ts'

const LF = 10

/**
 * Converts the bytes of a chat completion into parts as they arrive: an event stream, one JSON body, or a line of JSON
 * per chunk. Returns whether the reply is settled and whether it is complete.
 */
export function createChatReader(options: ReplyOptions): (bytes: Buffer | null, parts: Part[]) => Reading {
  const reply = createChatReply(options)
  let decoder: StringDecoder | null = null
  let parser: EventSourceParser | null = null
  let into: Part[] = []
  let rest: ReturnType<typeof createRestOfData> | null = null
  /** First characters of the answer; null once the server speaks the protocol. */
  let head: string | null = ''
  /** Whether the answer has begun, apart from blanks. */
  let isBegun = false
  /** Pieces of a JSON body, until it is complete. */
  let body: string[] | null = null
  let length = 0
  const config = {
    maxBufferSize: MAX_EVENT,
    onEvent: ({ data, event }: { data: string; event?: string | undefined }) =>
      readData(reply, rest?.complete(data) ?? data, event, into),
    onError(error: ParseError) {
      if (readOdd(reply, error, into)) return
      rest ??= createRestOfData()
      rest.add(error)
    },
  }

  function feed(text: string): void {
    if (body) {
      length += text.length
      if (length > MAX_EVENT) refuseLong()
      body.push(text)
      return
    }
    parser ??= createParser(config)
    parser.feed(text)
  }

  function begin(text: string): void {
    // Blanks show that a server is alive. Collecting them would read all of them again with each piece.
    const first = /\S/.exec(text)?.[0]
    if (!first) return
    // An event stream may begin with a byte order mark, which is not part of it.
    const begun = text.replace(/^\ufeff/, '')
    if (first === '{' || first === '[') body = []
    head = begun.slice(0, MAX_HEAD)
    feed(begun)
    isBegun = true
  }

  function end(): void {
    if (body) readBody(reply, body.join(''), into)
    // The last event may lack its blank line.
    else if (isBegun && !reply.isOver) closeLast()
    if (reply.isOver) return
    if (!reply.isBegun && !isSettled(reply)) throw oddAnswer(head ?? '')
    endReply(reply, true, into)
  }

  function closeLast(): void {
    try {
      parser?.feed('\n\n')
    } catch (error) {
      // The event was cut off.
      if (!JSONParseError.isInstance(error)) throw error
    }
  }

  return (bytes, parts) => {
    into = parts
    if (!bytes) end()
    else {
      const before = parts.length
      const last = bytes.at(-1) ?? 0
      // A multi-byte character may be split.
      if (last > 0x7f) decoder ??= new StringDecoder()
      const text = decoder ? decoder.write(bytes) : bytes.toString()
      if (isBegun) {
        if (head !== null) head = `${head}${text}`.slice(0, MAX_HEAD)
        feed(text)
      } else begin(text)
      if (head !== null && reply.isBegun) head = null
      // Most events arrive whole, so little is buffered.
      if (last === LF && text.endsWith('\n\n')) parser = decoder = null
      // Any bytes show that the model is not silent.
      if (parts.length === before) parts.push({ type: 'raw', rawValue: null })
    }
    if (reply.isOver) return 'whole'
    return isSettled(reply) ? 'settled' : 'open'
  }
}

/** Reads the data of an event. */
function readData(reply: ChatReply, data: string, event: string | undefined, parts: Part[]): void {
  if (reply.isOver) return
  if (data === '[DONE]') {
    endReply(reply, false, parts)
    return
  }
  const chunk = parse(reply, data, event, parts)
  if (isObject(chunk)) {
    readChunk(reply, chunk, event, parts)
    return
  }
  for (const one of Array.isArray(chunk) ? chunk : [chunk]) {
    if (isObject(one) && !reply.isOver) readChunk(reply, one, event, parts)
    // Some servers encode the JSON of an event twice.
    else if (typeof one === 'string' && /^\s*[[{]/.test(one)) readData(reply, one, event, parts)
    else if (event === 'error' && typeof one === 'string') fail(reply, one, parts)
  }
}

/** Plain texts that gateways and local servers send as an event when they fail; other texts are keep-alives. */
const COMPLAINT = /error|fail|exceed|denied|invalid|incorrect|not found|too (?:long|many)|limit/i

/** Parses the data of an event. Returns null for data that is read already, or ignored. */
function parse(reply: ChatReply, data: string, event: string | undefined, parts: Part[]): unknown {
  try {
    // Some servers send an input as an object, whose large numbers keep their digits.
    return data.includes('"arguments"') ? parseExact(data) : JSON.parse(data)
  } catch (cause) {
    return readInvalid(reply, data, event, parts, cause)
  }
}

/**
 * Reads data that is not JSON. Plain texts are errors or keep-alives; broken JSON is neither. Throws a JSONParseError
 * for broken JSON before the reply is settled.
 */
function readInvalid(reply: ChatReply, data: string, event: string | undefined, parts: Part[], cause: unknown) {
  if (/^\s*\[done\]\s*$/i.test(data)) endReply(reply, false, parts)
  if (reply.isOver || !data.trim()) return null
  const pieces = splitData(data)
  if (pieces) {
    for (const piece of pieces) readData(reply, piece, event, parts)
    return null
  }
  if (isSettled(reply)) return null
  // Some servers write control characters of a text or an input as they are.
  const escaped = tryParseExact(escapeControls(data))
  if (escaped !== undefined) return escaped
  if (event === 'error') fail(reply, data, parts)
  else if (/^\s*[[{]/.test(data)) throw new JSONParseError({ text: data, cause })
  else if (COMPLAINT.test(data)) fail(reply, data, parts)
  return null
}

/** Ends the reply with the error that a server reports. */
function fail(reply: ChatReply, body: unknown, parts: Part[]): void {
  readChunk(reply, { error: body }, undefined, parts)
}

/** Reads a line that violates the event stream format. Returns false if it has neither an error nor data. */
function readOdd(reply: ChatReply, parseError: ParseError, parts: Part[]): boolean {
  const found = readOddLine(parseError)
  if (!found || reply.isOver) return found !== null
  if ('error' in found) fail(reply, readErrorBody(found.error), parts)
  else readData(reply, found.data, undefined, parts)
  return true
}

/** Reads a body of one JSON value, or of several. */
function readBody(reply: ChatReply, body: string, parts: Part[]): void {
  const values = tryParseExact(body) ?? tryParseExact(escapeControls(body))
  if (values === undefined) {
    const pieces = splitData(body) ?? body.split('\n').map((line) => line.replace(/^data:\s*/, ''))
    for (const piece of pieces) readData(reply, piece, undefined, parts)
    return
  }
  for (const value of Array.isArray(values) ? values : [values]) {
    if (isObject(value) && !reply.isOver) readChunk(reply, value, undefined, parts)
  }
  // A complete body is a complete reply.
  if (reply.isBegun && !reply.isOver) endReply(reply, false, parts)
}

import { StringDecoder } from 'node:string_decoder'
import { JSONParseError } from '@ai-sdk/provider'
import { createParser, type EventSourceParser, type ParseError } from 'eventsource-parser'
import { splitData } from '../../../lib/event-data.ts'
import { parseExact } from '../../../lib/exact-json.ts'
import { isObject } from '../../../lib/unknown.ts'
import { type ChatReply, createChatReply, type ReplyOptions } from './chat-reply.ts'
import { isPage, readErrorBody, titleOf } from './error-bodies.ts'
import { MAX_EVENT, refuseLong } from './event-size.ts'
import { ModelError, ReportedError } from './model-errors.ts'
import type { Reading } from './post.ts'
import type { Part } from './text-model.ts'

/** Maximum length of the start of an answer without events that is kept to describe the failure (characters). */
const MAX_HEAD = 4_000
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
  /** First characters of the answer; null once the server speaks the protocol. */
  let head: string | null = ''
  /** Pieces of a JSON body, until it is complete. */
  let body: string[] | null = null
  let length = 0
  const config = {
    maxBufferSize: MAX_EVENT,
    onEvent: ({ data, event }: { data: string; event?: string | undefined }) => readData(reply, data, event, into),
    onError: (error: ParseError) => readOdd(reply, error, into),
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
    // An event stream may begin with a byte order mark, which is not part of it.
    const begun = `${head}${text}`.replace(/^\ufeff/, '')
    const first = /\S/.exec(begun)?.[0]
    if (!first) {
      head = begun
      return
    }
    if (first === '{' || first === '[') body = []
    head = head === '' ? begun.slice(0, MAX_HEAD) : begun
    feed(begun)
    isBegun = true
  }
  let isBegun = false

  function end(): void {
    if (body) readBody(reply, body.join(''), into)
    // The last event may lack its blank line.
    else if (isBegun && !reply.isOver) closeLast()
    if (reply.isOver) return
    if (!reply.isBegun && !reply.isSettled) throw oddAnswer(head ?? '')
    reply.end(true, into)
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
      if (isBegun) feed(text)
      else begin(text)
      if (head !== null && reply.isBegun) head = null
      // Most events arrive whole, so little is buffered.
      if (last === LF && text.endsWith('\n\n')) parser = decoder = null
      // Any bytes show that the model is not silent.
      if (parts.length === before) parts.push({ type: 'raw', rawValue: null })
    }
    if (reply.isOver) return 'whole'
    return reply.isSettled ? 'settled' : 'open'
  }
}

function readData(reply: ChatReply, data: string, event: string | undefined, parts: Part[]): void {
  if (reply.isOver) return
  if (data === '[DONE]') {
    reply.end(false, parts)
    return
  }
  const chunk = parse(reply, data, event, parts)
  if (isObject(chunk)) {
    reply.read(chunk, event, parts)
    return
  }
  for (const one of Array.isArray(chunk) ? chunk : [chunk]) {
    if (isObject(one) && !reply.isOver) reply.read(one, event, parts)
    else if (event === 'error' && typeof one === 'string') fail(reply, one, parts)
  }
}

/** Parses the data of an event. Plain texts instead of JSON are errors or keep-alives; broken JSON is neither. */
function parse(reply: ChatReply, data: string, event: string | undefined, parts: Part[]): unknown {
  try {
    // Some servers send an input as an object.
    return data.includes('"arguments"') ? parseExact(data) : JSON.parse(data)
  } catch (cause) {
    if (/^\s*\[done\]\s*$/i.test(data)) reply.end(false, parts)
    if (reply.isOver || !data.trim()) return null
    const pieces = splitData(data)
    if (pieces) {
      for (const piece of pieces) readData(reply, piece, event, parts)
      return null
    }
    if (reply.isSettled) return null
    if (event === 'error' || !/^\s*[[{]/.test(data)) {
      if (
        event === 'error' ||
        /error|fail|exceed|denied|invalid|incorrect|not found|too (?:long|many)|limit/i.test(data)
      )
        fail(reply, data, parts)
      return null
    }
    throw new JSONParseError({ text: data, cause })
  }
}

function fail(reply: ChatReply, body: unknown, parts: Part[]): void {
  reply.read({ error: body }, undefined, parts)
}

/**
 * Reads lines that violate the event stream format: llama.cpp's `error: {…}`, chunks without `data:`, and `data` in
 * another spelling.
 */
function readOdd(reply: ChatReply, { type, field, value, line }: ParseError, parts: Part[]): void {
  if (type === 'max-buffer-size-exceeded') refuseLong()
  if (type !== 'unknown-field' || reply.isOver) return
  if (field === 'error' && value) fail(reply, readErrorBody(value), parts)
  else if (/^\s*data$/i.test(field ?? '')) readData(reply, value?.trim() ?? '', undefined, parts)
  else if (line?.startsWith('{')) readData(reply, line, undefined, parts)
}

/** Reads a body of one JSON value, or one value per line. */
function readBody(reply: ChatReply, body: string, parts: Part[]): void {
  let values: unknown
  try {
    values = parseExact(body)
  } catch {
    for (const line of body.split('\n')) readData(reply, line.replace(/^data:\s*/, ''), undefined, parts)
    return
  }
  for (const value of Array.isArray(values) ? values : [values]) {
    if (isObject(value) && !reply.isOver) reply.read(value, undefined, parts)
  }
  // A complete body is a complete reply.
  if (reply.isBegun && !reply.isOver) reply.end(false, parts)
}

/** Returns the failure for an answer outside the protocol, from its first characters. */
export function oddAnswer(head: string): Error {
  const text = head.trim()
  if (!text) return new ModelError('The model server sent an empty answer', 'broken_off')
  if (isPage(text)) {
    const title = titleOf(text)
    const page = title ? `a web page titled "${title}"` : 'a web page'
    return new ModelError(
      `The model server answered with ${page} (HTML) instead of a model's answer. Check its base address`,
      'unreadable',
    )
  }
  if (/\ufffd[^\ufffd]*\ufffd|[\x00-\x08]/.test(text))
    return new ModelError('The model server sent data that is not text', 'unreadable')
  if (/^[[{]/.test(text))
    return new ModelError('The model server answered with JSON that is not a chat completion', 'unreadable')
  if (/^(?:data|event|id|retry)?:/m.test(text))
    return new ModelError('The model server ended its stream without an answer', 'broken_off')
  return new ReportedError(text)
}

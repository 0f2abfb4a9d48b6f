import { createParser } from 'eventsource-parser'
import { BadAnswer } from '../lib/safe-fetch.ts'

/** Of one message. What is made of so many already keeps everybody waiting for a tenth of a second. */
const MAX_VALUES = 50_000

const [QUOTE, COMMA, BRACKET, BACKSLASH, BRACE] = Buffer.from('",[\\{')

/**
 * Looks at the body of an answer as it comes, JSON or an event stream of it, before anybody parses it: throws where a
 * message has too many values.
 */
export function checkSize({ headers }: Response): (portion: Uint8Array) => void {
  if (!/^\s*text\/event-stream/i.test(headers.get('content-type') ?? '')) return counter()
  const decoder = new TextDecoder()
  const parser = createParser({ onEvent: ({ data }) => counter()(Buffer.from(data)) })
  return (portion) => parser.feed(decoder.decode(portion, { stream: true }))
}

/** Counts the values of a JSON text that comes piece by piece: each begins with a bracket, or behind one or a comma. */
function counter(): (piece: Uint8Array) => void {
  let values = 0
  let isString = false
  let isEscaped = false
  return (piece) => {
    for (const byte of piece) {
      if (isEscaped) isEscaped = false
      else if (byte === QUOTE) isString = !isString
      else if (isString) isEscaped = byte === BACKSLASH
      else if (byte === COMMA || byte === BRACKET || byte === BRACE) values++
    }
    if (values > MAX_VALUES) throw new BadAnswer('its answer has too many values')
  }
}

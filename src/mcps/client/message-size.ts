import { createParser } from 'eventsource-parser'
import { createTextReader } from '../../lib/charset.ts'
import { BadAnswer } from '../../lib/net/safe-fetch.ts'

/**
 * Maximum number of values in one message. Processing this many already blocks the event loop for a tenth of a second.
 */
const MAX_VALUES = 50_000
/** Reason of an answer with more than {@link MAX_VALUES}. */
export const TOO_MANY_VALUES = 'its answer has too many values'

const [QUOTE, COMMA, BRACKET, BACKSLASH, BRACE] = Buffer.from('",[\\{')

/**
 * Checks the body of a response, JSON or an event stream, while it arrives and before it is parsed. Throws if a message
 * has too many values.
 */
export function checkSize({ headers }: Response): (portion: Uint8Array) => void {
  const type = headers.get('content-type')
  if (!/^\s*text\/event-stream/i.test(type ?? '')) return counter()
  const text = createTextReader(type)
  const parser = createParser({ onEvent: ({ data }) => counter()(Buffer.from(data)) })
  return (portion) => parser.feed(text.read(portion))
}

/**
 * Counts the values of a JSON text incrementally: each follows a bracket or a comma. The returned function throws if
 * there are too many.
 */
export function counter(): (piece: Uint8Array) => void {
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
    if (values > MAX_VALUES) throw new BadAnswer(TOO_MANY_VALUES)
  }
}

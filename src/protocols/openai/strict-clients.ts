import type { IncomingMessage } from 'node:http'
import { type Item, isOwn } from './items.ts'
import type { toResponse } from './response.ts'
import type { ResponseEvent } from './response-stream.ts'

/**
 * Returns whether a client refuses items of types that it does not know: the AI SDK, and libraries for PHP, Rust, Java
 * and Swift. Those send the name of the HTTP library below them, or none.
 */
export const isStrict = ({ headers }: IncomingMessage): boolean =>
  /^$|\bai-sdk\b|^(GuzzleHttp|Symfony|Java-http-client|okhttp)\b|\bCFNetwork\b/.test(headers['user-agent'] ?? '')

/** A response as its client gets it. */
export type Sent = ReturnType<typeof toResponse>

/** Leaves the service's own items out of a response. */
export const withoutOwn = (response: Sent): Sent => ({
  ...response,
  output: response.output.filter((item) => !isOwn(item)),
})

/** Creates a function that leaves the service's own items out of the events of a response, from its first one on. */
export function createFilter() {
  const hidden: number[] = []
  return (event: ResponseEvent): ResponseEvent[] => {
    const { item, output_index: index, response } = event
    if (response) return [{ ...event, response: withoutOwn(response as Sent) }]
    if (typeof index !== 'number') return [event]
    if (item && isOwn(item as Item)) {
      if (event.type === 'response.output_item.added') hidden.push(index)
      return []
    }
    return [{ ...event, output_index: index - hidden.filter((before) => before < index).length }]
  }
}

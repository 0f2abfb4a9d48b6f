import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { AppError, badRequest, toBody } from '../errors.ts'
import { newId } from '../lib/id.ts'
import { STATUS_CODES } from '../lib/net/http.ts'

/** Maximum time until a whole request has arrived (ms): the largest upload over a slow link. */
export const REQUEST_TIMEOUT = 30 * 60_000

const STATUS: Record<string, number> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 }

/**
 * Responds to malformed HTTP, oversized headers or slow requests with the service's error body, and closes the
 * connection. Node reports each further piece of the same request, too. It is discarded, because closing the
 * connection while the client still sends would reset it, and discard the response.
 */
export function refuseMalformed(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (socket.writableEnded && error.code?.startsWith('HPE_')) return
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const status = STATUS[error.code ?? ''] ?? 400
  const requestId = newId()
  const phrase = STATUS_CODES[status] ?? ''
  const body = JSON.stringify(toBody(refusalOf(status, phrase), requestId))
  socket.end(
    `HTTP/1.1 ${status} ${phrase}\r\nContent-Type: application/json; charset=utf-8\r\nX-Request-Id: ${requestId}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  )
  // Frees the descriptor even if the client neither closes nor reads.
  setTimeout(() => socket.destroy(), HANG_UP_AFTER).unref()
}

function refusalOf(status: number, phrase: string): AppError {
  if (status === 431)
    return new AppError(431, phrase, { detail: 'Send fewer or shorter headers: all together 16 KiB.' })
  if (status === 408) return new AppError(408, phrase, { detail: SLOW })
  return malformed()
}

const SLOW = `Send the headers within a minute, and the whole request within ${REQUEST_TIMEOUT / 60_000} minutes.`

/** Time that a client has to read the error before its connection is closed (ms). */
const HANG_UP_AFTER = 1_000

/**
 * Rejects requests that Node would reject without a body: HTTP/1.1 without a host, and expectations other than
 * 100-continue.
 */
export function checkProtocol({ httpVersion, headers: { host, expect }, rawHeaders }: IncomingMessage): void {
  // A proxy may use the first host and this server the second.
  if (host !== undefined && countHosts(rawHeaders) > 1) throw malformed()
  if (httpVersion !== '1.1') return
  if (host === undefined) throw malformed()
  if (expect !== undefined && !/100-continue/i.test(expect)) {
    throw new AppError(417, 'Expectation Failed', { detail: 'Leave the header Expect out, or send 100-continue.' })
  }
}

function countHosts(rawHeaders: readonly string[]): number {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string
    if (name.length === 4 && name.toLowerCase() === 'host') count++
  }
  return count
}

/** Returns the error for malformed or truncated requests. */
export const malformed = () =>
  badRequest('Malformed HTTP request', { detail: 'The request violates HTTP/1.1. Send it with an HTTP library.' })

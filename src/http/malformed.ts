import { type IncomingMessage, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import { AppError, badRequest, toBody } from '../errors.ts'
import { newId } from '../lib/id.ts'

const STATUS: Record<string, number> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 }

/** Answers what is not HTTP, too large in its headers or too slow, in the service's error body, and hangs up. */
export function refuseMalformed(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const status = STATUS[error.code ?? ''] ?? 400
  const requestId = newId()
  const phrase = STATUS_CODES[status] ?? ''
  const body = JSON.stringify(toBody(status === 400 ? malformed() : new AppError(status, phrase), requestId))
  socket.end(
    `HTTP/1.1 ${status} ${phrase}\r\nContent-Type: application/json; charset=utf-8\r\nX-Request-Id: ${requestId}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  )
  // A client that does not hang up, or does not read, must not keep its descriptor.
  setTimeout(() => socket.destroy(), HANG_UP_AFTER).unref()
}

/** How long a client may take to read why its connection ends (ms). */
const HANG_UP_AFTER = 1_000

/** Refuses what Node would refuse without a body: HTTP/1.1 names a host, and there is nothing to expect but 100-continue. */
export function checkProtocol({ httpVersion, headers: { host, expect }, rawHeaders }: IncomingMessage): void {
  // A proxy may believe the one and this server the other.
  if (host !== undefined && countHosts(rawHeaders) > 1) throw malformed()
  if (httpVersion !== '1.1') return
  if (host === undefined) throw malformed()
  if (expect !== undefined && !/100-continue/i.test(expect)) throw new AppError(417, 'Expectation Failed')
}

function countHosts(rawHeaders: readonly string[]): number {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string
    if (name.length === 4 && name.toLowerCase() === 'host') count++
  }
  return count
}

/** What is no request, or breaks off. */
export const malformed = () => badRequest('Malformed HTTP request')

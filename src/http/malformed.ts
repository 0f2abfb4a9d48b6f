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
}

/** Refuses what Node would refuse without a body: HTTP/1.1 names a host, and there is nothing to expect but 100-continue. */
export function checkProtocol({ httpVersion, headers: { host, expect } }: IncomingMessage): void {
  if (httpVersion !== '1.1') return
  if (host === undefined) throw malformed()
  if (expect !== undefined && !/100-continue/i.test(expect)) throw new AppError(417, 'Expectation Failed')
}

/** What is no request, or breaks off. */
export const malformed = () => badRequest('Malformed HTTP request')

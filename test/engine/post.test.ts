import { createServer, type ServerResponse } from 'node:http'
import { setTimeout as later } from 'node:timers/promises'
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { Agent } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createChatReader } from '../../src/executions/engine/models/chat-stream.ts'
import { describeModelError } from '../../src/executions/engine/models/model-errors.ts'
import { post } from '../../src/executions/engine/models/post.ts'
import type { Part } from '../../src/executions/engine/models/text-model.ts'
import { listen } from '../support/listen.ts'

let answer: (response: ServerResponse) => void
const server = createServer((request, response) => {
  request.resume()
  answer(response)
})
const dispatcher = new Agent()
let port = 0
beforeAll(async () => {
  port = await listen(server)
})
afterAll(async () => {
  await dispatcher.destroy()
  server.closeAllConnections()
  server.close()
})

const data = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`
const TEXT = data({ choices: [{ delta: { content: 'Hi' } }] })
const FINISH = data({ choices: [{ delta: {}, finish_reason: 'stop' }] })
const USAGE = data({ choices: [], usage: { prompt_tokens: 5, completion_tokens: 7 } })
const WHOLE = `${TEXT}${FINISH}${USAGE}data: [DONE]\n\n`

/** Keeps the process busy (ms). */
const block = (ms: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)

/** Reads an answer to its end. Returns its text, finish reason and tokens, or the failure. */
async function read(): Promise<string> {
  const url = `http://127.0.0.1:${port}/v1/chat/completions`
  const reader = createChatReader({ metadataKey: 'compatible', tools: new Set(), thinkTags: false })
  try {
    const parts: Part[] = []
    const request = { url, dispatcher, headers: {}, body: '{}', signal: undefined }
    for await (const some of await post(request, reader)) parts.push(...some)
    return parts
      .map((part) => {
        if (part.type === 'text-delta') return part.delta
        if (part.type !== 'finish') return ''
        const { finishReason, usage } = part
        return ` ${finishReason.unified} ${usage.inputTokens.total ?? '?'}/${usage.outputTokens.total ?? '?'}`
      })
      .join('')
  } catch (error) {
    return describeModelError(error, [])
  }
}

describe('the answer to a chat completion', () => {
  it.each<[string, Buffer]>([
    ['gzip', gzipSync(WHOLE)],
    ['deflate', deflateSync(WHOLE)],
    ['Deflate', deflateRawSync(WHOLE)],
    ['br', brotliCompressSync(WHOLE)],
    ['zstd', zstdCompressSync(WHOLE)],
    ['identity', Buffer.from(WHOLE)],
    ['UTF-8', Buffer.from(WHOLE)],
    ['gzip', Buffer.from(WHOLE)],
    ['identity', gzipSync(WHOLE)],
    ['gzip, gzip', gzipSync(WHOLE)],
    ['gzip, br', brotliCompressSync(gzipSync(WHOLE))],
    ['identity, gzip', gzipSync(WHOLE)],
    ['later', Buffer.from(WHOLE)],
  ])('is read if the server encodes it as %s unasked', async (encoding, bytes) => {
    answer = (response) => response.writeHead(200, { 'content-encoding': encoding }).end(bytes)
    expect(await read()).toBe('Hi stop 5/7')
  })

  it('fails with a cause if its encoding is unknown', async () => {
    answer = (response) => response.writeHead(200, { 'content-encoding': 'later' }).end('x')
    expect(await read()).toContain('later')
  })

  it.each<[string, string, string]>([
    ['ISO-8859-1', 'latin1', 'Grüße'],
    ['ISO-8859-1', 'utf8', 'Grüße 你'],
    ['utf-16', 'utf16le', 'Grüße 你'],
    ['UTF-8', 'utf16le', 'Grüße 你'],
    ['UTF-8', 'utf8', 'Grüße 你'],
    ['later', 'utf8', 'Grüße 你'],
  ])('is read if its content type states the charset %s and its bytes are %s', async (charset, encoding, words) => {
    const type = { 'content-type': `text/event-stream; charset=${charset}` }
    const bytes = Buffer.from(WHOLE.replace('Hi', words), encoding as BufferEncoding)
    answer = (response) => {
      response.writeHead(200, type)
      for (const byte of bytes) response.write(Buffer.of(byte))
      response.end()
    }
    expect(await read()).toBe(`${words} stop 5/7`)
    answer = (response) =>
      response.writeHead(400, type).end(Buffer.from(`{"error":"${words}"}`, encoding as BufferEncoding))
    expect(await read()).toBe(`HTTP 400: ${words}`)
  })

  it.each([
    ['with', '\ufeff'],
    ['without', ''],
  ])('is read in UTF-16 %s a byte order mark and without a charset', async (_, mark) => {
    const bytes = Buffer.from(mark + WHOLE, 'utf16le')
    for (const body of [bytes, Buffer.from(bytes).swap16()]) {
      answer = (response) => response.writeHead(200).end(body)
      expect(await read()).toBe('Hi stop 5/7')
    }
  })

  it('is read in the charset ISO-2022-JP, whose bytes are ASCII', async () => {
    const body = WHOLE.replace('Hi', '\x1b$BF|K\\\x1b(B')
    answer = (response) => response.writeHead(200, { 'content-type': 'x; charset=iso-2022-jp' }).end(body)
    expect(await read()).toBe('日本 stop 5/7')
  })

  it('gives the reason of a refusal that is too long to be read whole, or that is left open', async () => {
    const body = `{"error":{"type":"x","message":"No \\"such\\" model ${'x'.repeat(100_000)}"}}`
    answer = (response) => response.writeHead(404).end(body)
    expect(await read()).toContain('HTTP 404: No "such" model xxx')
    answer = (response) => response.writeHead(404).write('{"error":{"message":"No such model"}}')
    expect(await read()).toBe('HTTP 404: No such model')
  })

  const SPACES = Buffer.alloc(4 * 1024 * 1024, ' ')
  it.each<[string, Buffer, string | undefined, string]>([
    ['plain bytes', SPACES, undefined, 'is slow'],
    ['gzip', gzipSync(SPACES), 'gzip', 'is slow'],
    ['gzip twice', gzipSync(gzipSync(SPACES)), 'gzip, gzip', 'is slow'],
    ['gzip without a header', gzipSync(SPACES), undefined, 'is slow'],
    ['gzip', gzipSync(SPACES), 'gzip', 'has enough'],
    ['gzip twice', gzipSync(gzipSync(SPACES)), 'gzip, gzip', 'has enough'],
  ])('in %s is read no further than its parts are taken if its reader %s', async (_, bytes, encoding, reader) => {
    answer = (response) => response.writeHead(200, encoding ? { 'content-encoding': encoding } : {}).end(bytes)
    const request = { url: `http://127.0.0.1:${port}`, dispatcher, headers: {}, body: '{}', signal: undefined }
    /** Returns the parts of an answer, one for a hundred bytes, and the number of its decoded bytes. */
    const readSpaces = async (hasEnough: boolean) => {
      const decoded = { bytes: 0 }
      const parts = await post<string>(request, (some, into) => {
        decoded.bytes += some?.length ?? 0
        into.push(...Array(Math.ceil((some?.length ?? 0) / 100)).fill(''))
        return hasEnough ? 'whole' : 'open'
      })
      return { parts, decoded }
    }
    const first = await readSpaces(reader === 'has enough')
    await first.parts[Symbol.asyncIterator]().next()
    const second = await readSpaces(false)
    for await (const _ of second.parts);
    expect(second.decoded.bytes).toBe(SPACES.length)
    expect(first.decoded.bytes).toBeLessThan(256 * 1024)
    if (reader === 'is slow') for await (const _ of first.parts);
    if (reader === 'is slow') expect(first.decoded.bytes).toBe(SPACES.length)
  })

  it('gives the reason of a refusal that is encoded', async () => {
    const body = gzipSync('{"error":{"message":"No such model"}}')
    for (const headers of [{ 'content-encoding': 'gzip' }, { 'content-encoding': 'gzip, gzip' }, {}]) {
      answer = (response) => response.writeHead(404, headers).end(body)
      expect(await read()).toBe('HTTP 404: No such model')
    }
  })

  it.each<[string, string, (response: ServerResponse) => void, string]>([
    ['the connection is reset', TEXT + FINISH, (response) => response.socket?.resetAndDestroy(), 'Hi stop ?/?'],
    ['the server is silent', TEXT + FINISH, () => {}, 'Hi stop ?/?'],
    ['the usage comes and the server is silent', TEXT + FINISH + USAGE, () => {}, 'Hi stop 5/7'],
    ['the usage comes later', TEXT + FINISH, (response) => response.end(USAGE), 'Hi stop 5/7'],
    [
      'the process is busy when the usage comes',
      TEXT + FINISH,
      (response) => {
        setTimeout(() => response.end(USAGE), 900)
        setTimeout(() => setImmediate(block, 500), 700)
      },
      'Hi stop 5/7',
    ],
    ['garbage comes', TEXT + FINISH, (response) => response.end('data: {"cho\n\n'), 'Hi stop ?/?'],
  ])('is whole after its finish reason if %s', async (_, body, then, expected) => {
    answer = (response) => response.writeHead(200).write(body, () => setImmediate(() => then(response)))
    expect(await read()).toBe(expected)
  })

  it.each(['gzip', 'br', 'zstd'])('in %s is whole if its connection breaks right after it', async (encoding) => {
    const encode = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdCompressSync }[encoding]!
    answer = (response) => {
      const length = String(encode(WHOLE).length + 1)
      response.writeHead(200, { 'content-encoding': encoding, 'content-length': length })
      response.write(encode(WHOLE), () => response.socket?.end())
    }
    expect(await read()).toBe('Hi stop 5/7')
  })

  it.each(['gzip', 'br', 'zstd'])('in %s is incomplete if its connection breaks in the middle', async (encoding) => {
    const whole = TEXT + 'x'.repeat(1_000) + FINISH
    const encode = { gzip: gzipSync, br: brotliCompressSync, zstd: zstdCompressSync }[encoding]!
    answer = (response) => {
      response.writeHead(200, { 'content-encoding': encoding, 'content-length': '1000' })
      response.write(encode(whole).subarray(0, -10), () => response.socket?.end())
    }
    expect(await read()).toMatch(/^The connection to the model broke/)
  })

  it('is read to its end by a slow reader if each chunk has a finish reason', async () => {
    const chunk = data({ choices: [{ delta: { content: 'a' }, finish_reason: 'stop' }] })
    answer = (response) => response.writeHead(200).end(chunk.repeat(20_000) + USAGE)
    const url = `http://127.0.0.1:${port}`
    const reader = createChatReader({ metadataKey: 'compatible', tools: new Set(), thinkTags: false })
    const parts = await post({ url, dispatcher, headers: {}, body: '{}', signal: undefined }, reader)
    let length = 0
    let isFirst = true
    for await (const some of parts) {
      for (const part of some) if (part.type === 'text-delta') length += part.delta.length
      if (isFirst) await later(1_200)
      isFirst = false
    }
    expect(length).toBe(20_000)
  })

  it('is read to its end if each chunk has a finish reason', async () => {
    const chunks = ['a', 'b', 'c', 'd'].map((content) =>
      data({ choices: [{ delta: { content }, finish_reason: 'stop' }] }),
    )
    answer = (response) => {
      const next = () => {
        const chunk = chunks.shift()
        if (!chunk) return response.end(USAGE)
        response.write(chunk)
        setTimeout(next, 400)
      }
      next()
    }
    expect(await read()).toBe('abcd stop 5/7')
  })

  it('is incomplete if its connection is reset before its finish reason', async () => {
    answer = (response) =>
      response.writeHead(200).write(TEXT, () => setImmediate(() => response.socket?.resetAndDestroy()))
    expect(await read()).toMatch(/^The connection to the model broke/)
  })

  it('an answer that is a redirect is refused with its target, without the query', async () => {
    answer = (response) => response.writeHead(308, { location: 'https://b.example/v1?key=x' }).end()
    expect(await read()).toBe(
      'HTTP 308: Permanent Redirect, a redirect to https://b.example/v1: redirects are not followed, set the base address to the target',
    )
  })
})

import { Agent, request } from 'node:http'

export type StreamTarget = {
  url: string
  headers: Record<string, string>
  /** `[<id>]` in it is replaced by a unique id per stream. */
  body: unknown
  /** A text that the stream contains once per token. */
  marker: string
}

/** As many connections as streams, so that none waits for another. */
const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })
const PATIENCE = 150_000

/** POSTs and reads the stream. Returns the number of tokens, and the time to the first one (ms). */
export function readStream(target: StreamTarget): Promise<{ tokens: number; first: number }> {
  const body = JSON.stringify(target.body).replace('[<id>]', crypto.randomUUID())
  const started = performance.now()
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(PATIENCE)
    const headers = { ...target.headers, 'content-length': Buffer.byteLength(body) }
    const req = request(target.url, { method: 'POST', headers, agent, signal }, (res) => {
      let [tokens, first, rest, head] = [0, Number.NaN, '', '']
      res.setEncoding('utf8')
      res.on('data', (chunk: string) => {
        const text = rest + chunk
        if (head.length < 500) head += chunk
        for (let at = text.indexOf(target.marker); at !== -1; at = text.indexOf(target.marker, at + 1)) tokens += 1
        // A marker may be cut in two.
        rest = text.slice(1 - target.marker.length)
        if (tokens && Number.isNaN(first)) first = performance.now() - started
      })
      res.on('error', reject)
      res.on('end', () => {
        if (res.statusCode === 200 && tokens) resolve({ tokens, first })
        else reject(new Error(`${target.url} answered ${res.statusCode} and ${tokens} tokens: ${head}`))
      })
    })
    req.on('error', reject)
    req.end(body)
  })
}

import { availableParallelism } from 'node:os'
import { Worker } from 'node:worker_threads'
import { badRequest } from '../errors.ts'
import { causesOf } from '../lib/causes.ts'
import { decodeText, foreignCharset } from '../lib/charset.ts'
import { decodeFile } from '../lib/file-type.ts'
import { isPublicAddress } from '../lib/net/addresses.ts'
import { CERTIFICATE } from '../lib/net/certificate.ts'
import { ForbiddenAddress } from '../lib/net/network.ts'
import { createProxyFor } from '../lib/net/proxies.ts'
import { BadAnswer, createSafeFetch, type SafeFetchOptions } from '../lib/net/safe-fetch.ts'
import { createQueues } from '../lib/queues.ts'
import { abortable } from '../lib/race-abort.ts'
import { beginning } from '../lib/text.ts'
import { asObject, asText } from '../lib/unknown.ts'
import type { Settings } from '../settings.ts'

/** Maximum size of a page (bytes), maximum duration of its transfer and of its conversion (ms). */
const MAX_BYTES = 2 * 1024 * 1024
const TIMEOUT = 20_000
const MAX_CONVERSION = 10_000
/** Maximum memory of a conversion (MiB). */
const MAX_MEMORY = 256
/**
 * Conversions run one per processor. More at a time would exceed their duration together, and take the time of all
 * other requests.
 */
const inTurn = createQueues(availableParallelism())

export type Page = {
  /** The address after redirects. */
  url: string
  title: string
  /** Markdown of an HTML page, or the text of another. */
  text: string
  isCut: boolean
}

export type PageRequest = {
  url: string
  headers?: Record<string, string>
  signal: AbortSignal
  /** Whether redirects are followed. Default: true. */
  mayRedirect?: boolean
}

type Options = Pick<SafeFetchOptions, 'isAllowed' | 'lookup'> & {
  /** Maximum duration of a conversion (ms). */
  maxConversion?: number
}

/**
 * Fetches a page under the private-network rule and converts it to Markdown (contract-2.md section 2.11). Throws 400
 * with the reason if the page cannot be read. Follows up to five redirects, each checked and pinned.
 */
export async function fetchPage(
  settings: Settings,
  request: PageRequest,
  { maxConversion = MAX_CONVERSION, ...options }: Options = {
    isAllowed: settings.ALLOW_PRIVATE_NETWORK ? undefined : isPublicAddress,
  },
): Promise<Page> {
  const { url, type, bytes, isCut } = await download(settings, request, options)
  const convert = (html: string) => toMarkdown(html, url, request.signal, maxConversion)
  return { url, isCut, ...(await toText(type, bytes, convert)) }
}

type Download = { url: string; type: string; bytes: Buffer; isCut: boolean }

/** Reads a page within the time of a transfer. Throws as {@link fetchPage} does. */
async function download(
  settings: Settings,
  { url: given, headers = {}, signal, mayRedirect = true }: PageRequest,
  options: Omit<Options, 'maxConversion'>,
): Promise<Download> {
  const url = URL.parse(given)
  if (!url || !/^https?:$/.test(url.protocol)) throw badRequest('Invalid url. Expected an http or https address')
  if (url.username || url.password) throw badRequest('Invalid url. An address with a password is not fetched')
  const limit = AbortSignal.timeout(TIMEOUT)
  const anySignal = AbortSignal.any([signal, limit])
  const safe = createSafeFetch({
    ...options,
    proxyFor: createProxyFor(settings),
    ...(!mayRedirect && { maxRedirects: 0 }),
    maxResponse: Number.POSITIVE_INFINITY,
    headersTimeout: TIMEOUT,
    idleTimeout: TIMEOUT,
  })
  try {
    const accept = 'text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1'
    const request = { headers: { accept, 'user-agent': 'Muster web_fetch', ...headers }, signal: anySignal }
    const response = await safe.fetch(url, request)
    if (!response.ok) throw badRequest(`The server answered HTTP ${response.status}${await reasonIn(response)}`)
    const type = response.headers.get('content-type') ?? ''
    return { url: response.url || url.href, type, ...(await readBody(response)) }
  } catch (error) {
    signal.throwIfAborted()
    if (limit.aborted) throw badRequest(`The page did not arrive within ${TIMEOUT / 1000} s`)
    throw asRefusal(error)
  } finally {
    await safe.close()
  }
}

/** Maximum length of the quoted reason of a refusal (characters). */
const MAX_REASON = 1_000

/** Returns the reason of a refusal after a colon: the text of an API, which names what to correct, but no page of HTML. */
async function reasonIn(response: Response): Promise<string> {
  if (response.headers.get('cf-mitigated') === 'challenge') return ': it admits browsers only'
  const type = response.headers.get('content-type') ?? ''
  if (!/^text\/plain\b|^application\/(?:[\w.-]+\+)?json\b/i.test(type)) return ''
  const { bytes } = await readBody(response)
  const reason = decode(type, bytes, false).replaceAll('\0', '').trim()
  return reason && `: ${beginning(reason, MAX_REASON)}`
}

/** Reads the beginning of a body. */
async function readBody({ body }: Response): Promise<{ bytes: Buffer; isCut: boolean }> {
  const chunks: Uint8Array[] = []
  let left = MAX_BYTES
  for await (const chunk of body ?? []) {
    chunks.push(chunk.subarray(0, left))
    left -= chunk.byteLength
    if (left < 0) break
  }
  return { bytes: Buffer.concat(chunks), isCut: left < 0 }
}

/** Returns a known failure as a 400 that the model can read. */
function asRefusal(error: unknown): unknown {
  for (const cause of causesOf(error)) {
    if (cause instanceof ForbiddenAddress) return badRequest('The address is not allowed')
    if (cause instanceof BadAnswer) return badRequest(`The page was not read: ${cause.message}`)
    if (cause.message === 'bad port') return badRequest('The port is one that HTTP clients do not use')
    const code = asText(asObject(cause).code)
    if (/^(?:ENOTFOUND|EAI_AGAIN)$/.test(code)) return badRequest('The name of the server is unknown')
    if (CERTIFICATE.test(code) || /^(?:ECONN|UND_ERR|HPE_|ERR_(?:TLS|SSL)|EHOST|ENET|EPIPE|ETIMEDOUT|Z_)/.test(code)) {
      return badRequest(`The server could not be reached (${code})`)
    }
  }
  return error
}

const STATED = /(?:charset|encoding)\s*=\s*["']?([\w-]+)/i

/**
 * Decodes a text in the charset that the header states, or a page of markup at its beginning. Texts of old sites that
 * state none are read as browsers do.
 */
function decode(type: string, bytes: Buffer, isMarkup: boolean): string {
  const inPage = isMarkup ? STATED.exec(bytes.subarray(0, 1024).toString('latin1'))?.[1] : undefined
  const charset = foreignCharset(type) ?? foreignCharset(`; charset=${inPage}`) ?? 'windows-1252'
  return decodeText(bytes, `; charset=${charset}`)
}

type Converted = { title: string; text: string }

async function toText(type: string, bytes: Buffer, convert: (html: string) => Promise<Converted>): Promise<Converted> {
  const [kind = ''] = type.toLowerCase().split(';', 1)
  const isHtml = /^(?:text\/html|application\/xhtml\+xml)$/.test(kind.trim())
  const isGuessed = kind.trim() === '' && /^\s*<(?:!doctype html|html|head|body)\b/i.test(bytes.toString('latin1'))
  if (isHtml || isGuessed) return convert(decode(type, bytes, true))
  const isText = /^text\/|[/+](?:json|xml|yaml|javascript)$|^application\/(?:x-)?(?:ndjson|toml|sh)$/.test(kind.trim())
  if (!isText && decodeFile(bytes) === null) {
    throw badRequest(`The page is no text (${/^[\w.+/-]{1,100}$/.test(kind.trim()) ? kind.trim() : 'unknown type'})`)
  }
  return { title: '', text: decode(type, bytes, /[/+]xml$/.test(kind.trim())).replaceAll('\0', '') }
}

/** Converts HTML in a thread of its own, in turn. Throws 400 if that takes too long or too much memory. */
const toMarkdown = (html: string, url: string, signal: AbortSignal, maxDuration: number): Promise<Converted> =>
  abortable(
    inTurn('conversion', signal, () => convertInThread(html, url, signal, maxDuration)),
    signal,
  )

async function convertInThread(
  html: string,
  url: string,
  signal: AbortSignal,
  maxDuration: number,
): Promise<Converted> {
  const worker = new Worker(new URL('./markdown-thread.ts', import.meta.url), {
    workerData: { html, url },
    resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY, stackSizeMb: 8 },
    stdout: true,
    stderr: true,
  })
  const { promise, resolve, reject } = Promise.withResolvers<Converted>()
  const fail = () => reject(badRequest('The page could not be converted'))
  const stop = () => reject(signal.reason)
  const timer = setTimeout(fail, maxDuration)
  signal.addEventListener('abort', stop)
  worker.once('message', ({ title, markdown }) => resolve({ title, text: markdown }))
  worker.once('error', fail)
  worker.once('exit', fail)
  try {
    return await promise
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', stop)
    await worker.terminate()
  }
}

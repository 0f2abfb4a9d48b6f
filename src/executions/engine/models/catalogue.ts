import type { Clock } from '../../../lib/clock.ts'
import { parseJson } from '../../../lib/json.ts'
import { isModelId } from '../../../lib/model-name.ts'
import type { Network } from '../../../lib/net/network.ts'
import { raceTimeout } from '../../../lib/race-abort.ts'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import type { BodyReader } from './encoded-fetch.ts'
import { createKeySender } from './key-header.ts'
import { ModelError } from './model-errors.ts'

/** Maximum wait of a run for a list (ms). A server may be starting, or busy with a model that it loads. */
const TIMEOUT = 10_000
/** Maximum wait of a page for a list (ms). */
export const PAGE_TIMEOUT = 2_000
/** Maximum age of a cached list (ms). */
const MAX_AGE = 60_000
/** Maximum size of a model list (bytes, models). OpenRouter's has half a megabyte. */
const MAX_BYTES = 8 * 1024 * 1024
const MAX_MODELS = 5_000

/** Ids of models that servers list beside chat models. */
const CANNOT_CHAT = new RegExp(
  [
    // Embeddings and ranks.
    /embed|rerank|\b(?:bge|gte|voyage|paraphrase)-|(?:^|[/-])e5-|\bclip\b|minilm|mpnet|colbert|colpali|colqwen|splade/,
    // Speech and music.
    /whisper|tts|transcri|realtime|speech|voice|\b(?:asr|stt)\b|paraformer|parakeet|kokoro|\bpiper\b|musicgen|\blyria/,
    /\bgpt-(?:4o-)?(?:mini-)?audio/,
    // Pictures and videos.
    /dall-e|image|diffusion|\bflux|\bsdxl|kolors|seedream|\bsora|\bveo-|\bkling|seedance|cogvideo|hunyuan-?video|ltx-video/,
    /\bwanx?\d|\b[ti]2[iv]\b/,
    // Texts in pictures.
    /ocr(?![a-z])/,
    // Judges of other texts.
    /moderation|guard|shield|\breward\b/,
    // Completions.
    /(?:davinci|babbage)-002/,
  ]
    .map(({ source }) => source)
    .join('|'),
  'i',
)
/** Kinds of models that do not chat, as `type` (Together) or `model_type` (Xinference) names them. */
const OTHER_KINDS = /^(text[-_])?(embedding|rerank|image|audio|video|speech|transcri|moderation|tts|stt)/i

/** `isLoaded`: whether a local server has it in memory; false too if the server does not say so. */
export type ListedModel = { id: string; chats: boolean; isLoaded: boolean }

/** Endpoint that lists models. */
export type Listing = { url: string; headers: Readonly<Record<string, string>>; isOperators: boolean }

type Deps = { network(isOperators: boolean): Promise<Network>; clock: Clock }

/**
 * Fetches a provider's list of models within `timeout` (ms). Throws errors that `describeModelError` describes. Does
 * not follow redirects.
 */
export const fetchModels = (listing: Listing, deps: Deps, timeout: number): Promise<ListedModel[]> =>
  createKeySender(listing.headers)((headers) => fetchWith({ ...listing, headers }, deps, timeout))

async function fetchWith(
  { url, headers, isOperators }: Listing,
  { network }: Deps,
  timeout: number,
): Promise<ListedModel[]> {
  const [{ dispatcher }, { fetchEncoded, readBody }] = await Promise.all([
    network(isOperators),
    import('./encoded-fetch.ts'),
  ])
  const signal = AbortSignal.timeout(timeout)
  const response = await fetchEncoded(dispatcher)(url, { headers, signal }).catch((error) => {
    throw signal.aborted ? new ModelError(`No answer within ${timeout / 1000} s`) : error
  })
  const responseBody = response.body ? await readText(readBody(response.body, response.headers)) : ''
  if (!response.ok) {
    const { status: statusCode, statusText, headers: responseHeaders } = response
    const details = { statusCode, responseBody, responseHeaders: Object.fromEntries(responseHeaders) }
    throw Object.assign(new Error(statusText), details)
  }
  const models = readModelList(responseBody)
  if (!models) throw new ModelError('The answer is not a list of models')
  return models
}

async function readText(reader: BodyReader): Promise<string> {
  const chunks: Uint8Array[] = []
  let size = 0
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    size += next.value.length
    chunks.push(next.value)
    if (size <= MAX_BYTES) continue
    void reader.cancel().catch(() => {})
    throw new ModelError('The list of models is longer than 8 MiB')
  }
  return Buffer.concat(chunks).toString()
}

/**
 * Reads a list of models in any of the usual forms: `{data: […]}` (OpenAI), a bare list (Together, GitHub), `{models:
 * […]}` (Ollama, Google, Cohere), `{result: […]}` (Cloudflare), `{data: {models: […]}}`. Each entry is a name, or an
 * object with `id`, `name` or `model`; others are left out. Returns null for anything else.
 */
export function readModelList(text: string): ListedModel[] | null {
  const body = parseJson(text.replace(/^\ufeff/, ''))
  const { data, models, result } = asObject(body)
  const lists = [body, data, models, result, asObject(data).models, asObject(result).models].filter(Array.isArray)
  const list: unknown[] | undefined = lists.find(({ length }) => length > 0) ?? lists[0]
  if (!list) return null
  const found = new Map<string, ListedModel>()
  for (const item of list) {
    const fields = typeof item === 'string' ? { id: item } : asObject(item)
    const id = idOf(fields)
    if (isModelId('compatible', id) && !found.has(id))
      found.set(id, { id, chats: canChat(id, fields), isLoaded: isLoaded(fields) })
    if (found.size === MAX_MODELS) break
  }
  return [...found.values()]
}

function idOf({ id, model, name }: Fields): string {
  const given = typeof id === 'number' ? String(id) : asText(id) || asText(model) || asText(name)
  // Google's list names models `models/gemini-…`.
  return given.trim().replace(/^models\/(?=gem)/, '')
}

/** llama.cpp and LM Studio state which of their models are in memory. Others may take minutes, or be refused. */
const isLoaded = ({ status, state }: Fields): boolean => (asObject(status).value ?? state) === 'loaded'

function canChat(
  id: string,
  { type, model_type: kind, architecture, capabilities, active, supports_chat }: Fields,
): boolean {
  if (CANNOT_CHAT.test(id) || OTHER_KINDS.test(asText(type) || asText(kind))) return false
  // Groq, Fireworks.
  if (active === false || supports_chat === false) return false
  if (asObject(capabilities).completion_chat === false) return false
  // Ollama and LM Studio list what a model can do.
  if (Array.isArray(capabilities) && capabilities.includes('embedding') && !capabilities.includes('completion'))
    return false
  const { output_modalities: gives } = asObject(architecture)
  return !Array.isArray(gives) || gives.includes('text')
}

/** The models that an OpenAI-compatible server lists. */
export type Catalogue = {
  /**
   * Returns their ids, at most a minute old. If the server does not answer within 2 s, returns the cached ids or none.
   */
  list(): Promise<readonly string[]>
  /** Returns whether a model is listed, from the cached list if possible. */
  has(id: string): Promise<boolean>
  /**
   * Returns the first model that can chat, a loaded one if the server says so, or undefined. Requested once. Rejects if
   * the server is unreachable, or does not answer within 10 s.
   */
  first(): Promise<string | undefined>
  /** Returns the cached value of `first` without asking the server. */
  known(): string | undefined
}

/** Creates the catalogue of a server, which is read when it is first needed. */
export function createCatalogue(listing: Listing, deps: Deps): Catalogue {
  const { clock } = deps
  let models: readonly ListedModel[] = []
  let askedAt = Number.NEGATIVE_INFINITY
  let asking: Promise<readonly ListedModel[]> | undefined

  function ask(): Promise<readonly ListedModel[]> {
    askedAt = clock.now().getTime()
    asking ??= fetchModels(listing, deps, TIMEOUT)
      .then((found) => {
        models = found
        return found
      })
      .finally(() => {
        asking = undefined
      })
    return asking
  }

  async function refresh(): Promise<void> {
    if (asking || clock.now().getTime() - askedAt >= MAX_AGE) await ask().catch(() => undefined)
  }

  const firstOf = (some: readonly ListedModel[]) =>
    (some.find(({ chats, isLoaded }) => chats && isLoaded) ?? some.find(({ chats }) => chats) ?? some[0])?.id

  return {
    known: () => firstOf(models),
    async list() {
      await raceTimeout(refresh(), PAGE_TIMEOUT)
      return models.map(({ id }) => id)
    },
    async has(id) {
      const refreshed = refresh()
      if (!models.some((model) => model.id === id)) await refreshed
      return models.some((model) => model.id === id)
    },
    async first() {
      // The cached list is used at once and refreshed in the background, because the server may have loaded another
      // model.
      if (models.length > 0) void refresh()
      return firstOf(models.length > 0 ? models : await ask())
    },
  }
}

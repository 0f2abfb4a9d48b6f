import { z } from 'zod'
import type { Clock } from '../../lib/clock.ts'

const TIMEOUT = 2_000
const FRESH = 60_000

const Listing = z.object({ data: z.array(z.object({ id: z.string().min(1) })) })

// Local servers list these beside what can chat.
const CANNOT_CHAT = /embed|rerank|whisper|tts|dall-e|moderation/i

/** The models that an OpenAI-compatible server lists. */
type Catalogue = {
  /** Their ids, at most a minute old. A server that cannot be asked within 2 s gives what is known, or nothing. */
  list(): Promise<readonly string[]>
  /** The first one that can chat, undefined if there is none; asked for once. Rejects when the server cannot be asked. */
  first(): Promise<string | undefined>
}

/** @param baseUrl with `/v1` */
export function createCatalogue(baseUrl: string, apiKey: string | undefined, clock: Clock): Catalogue {
  const url = `${baseUrl.replace(/\/+$/, '')}/models`
  let ids: readonly string[] = []
  let askedAt = Number.NEGATIVE_INFINITY
  let asking: Promise<readonly string[]> | undefined

  async function request(): Promise<readonly string[]> {
    const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(TIMEOUT) })
    const responseBody = await response.text()
    if (!response.ok) {
      throw Object.assign(new Error(response.statusText), { statusCode: response.status, responseBody })
    }
    return Listing.parse(JSON.parse(responseBody)).data.map(({ id }) => id)
  }

  function ask(): Promise<readonly string[]> {
    askedAt = clock.now().getTime()
    asking ??= request()
      .then((found) => {
        ids = found
        return found
      })
      .finally(() => {
        asking = undefined
      })
    return asking
  }

  async function list(): Promise<readonly string[]> {
    if (asking || clock.now().getTime() - askedAt >= FRESH) await ask().catch(() => undefined)
    return ids
  }

  return {
    list,
    async first() {
      // What is known is used at once, and renewed behind: the server may have got another model.
      if (ids.length > 0) void list()
      const known = ids.length > 0 ? ids : await ask()
      return known.find((id) => !CANNOT_CHAT.test(id)) ?? known[0]
    },
  }
}

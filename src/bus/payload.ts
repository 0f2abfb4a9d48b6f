import type { Notices } from './index.ts'

/** PostgreSQL's limit for a notification is below 8000 bytes. */
const MAX_BYTES = 7900

export type NotifyPayload = { from: string; channel: keyof Notices | 'ping'; ids: string[] }

/** Packs ids into the minimum number of payloads: `<sender> <channel> <id> <id>…`. Ids are ASCII without spaces. */
export function pack(from: string, waiting: ReadonlyMap<NotifyPayload['channel'], ReadonlySet<string>>): string[] {
  const payloads: string[] = []
  for (const [channel, ids] of waiting) {
    const head = `${from} ${channel}`
    let payload = head
    for (const id of ids) {
      if (payload.length + 1 + id.length > MAX_BYTES) {
        payloads.push(payload)
        payload = head
      }
      payload += ` ${id}`
    }
    payloads.push(payload)
  }
  return payloads
}

/** Reads a payload of {@link pack}. */
export function unpack(payload: string): NotifyPayload {
  const [from = '', channel, ...ids] = payload.split(' ')
  return { from, channel: channel as NotifyPayload['channel'], ids }
}

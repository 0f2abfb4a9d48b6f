import type { Output } from '../../api.ts'

export type Message = Output<'chats.messages'>['messages'][number]

/** A visible message of the path, with its alternatives. */
export type Place = { message: Message; siblings: readonly Message[] }

const ROOT = ''

/**
 * Finds the path through the branches of a chat: at each fork the chosen message, or else the one whose branch was
 * continued last.
 */
export function wayThrough(messages: readonly Message[], chosen: Readonly<Record<string, string>>): Place[] {
  const children = Map.groupBy(messages, ({ parentId }) => parentId ?? ROOT)
  const newest = new Map<string, string>()
  // Children stand behind their parents.
  for (const message of messages.toReversed()) {
    const own = newest.get(message.id) ?? message.createdAt
    newest.set(message.id, own)
    const parent = message.parentId ?? ROOT
    if (own > (newest.get(parent) ?? '')) newest.set(parent, own)
  }
  const way: Place[] = []
  let parent = ROOT
  for (;;) {
    const siblings = children.get(parent)
    if (!siblings?.length) return way
    const wanted = chosen[parent]
    const message =
      siblings.find(({ id }) => id === wanted) ??
      siblings.reduce((best, each) => ((newest.get(each.id) ?? '') >= (newest.get(best.id) ?? '') ? each : best))
    way.push({ message, siblings })
    parent = message.id
  }
}

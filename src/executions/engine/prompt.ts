import { buffer } from 'node:stream/consumers'
import type { LanguageModelV4FilePart, LanguageModelV4Prompt, LanguageModelV4TextPart } from '@ai-sdk/provider'
import type { Db } from '../../db/client.ts'
import { PICTURES } from '../../media/schema.ts'
import type { MediaStorage } from '../../media/storage.ts'
import type { AgentRow } from './claims.ts'
import type { ExecutionRow } from './events.ts'

type PromptDeps = { db: Db; storage: MediaStorage }

type Turn = { role: 'user' | 'assistant'; content: string; mediaIds: readonly string[] }

/** What the model is asked: the agent's prompt, the space's instructions, the session so far, the message. */
export async function buildPrompt(
  deps: PromptDeps,
  agent: AgentRow,
  execution: ExecutionRow,
): Promise<LanguageModelV4Prompt> {
  const { message, organizationId } = execution
  const space = await deps.db.space.findUniqueOrThrow({
    where: { id: execution.spaceId },
    select: { instructions: true },
  })
  const system = [agent.systemPrompt, space.instructions].filter(Boolean).join('\n\n')
  const asked: Turn = { role: 'user', content: message, mediaIds: execution.mediaIds as string[] }
  const turns = [...(await readHistory(deps, execution)), asked]
  const attached = await readAttachments(deps, organizationId, turns)
  return [
    { role: 'system', content: system },
    ...turns.map(({ role, content }, index) =>
      role === 'assistant'
        ? { role, content: [text(content)] }
        : { role, content: [text(content), ...(attached[index] ?? [])] },
    ),
  ]
}

const text = (content: string): LanguageModelV4TextPart => ({ type: 'text', text: content })

async function readHistory({ db }: PromptDeps, { sessionId, queueSeq }: ExecutionRow): Promise<Turn[]> {
  if (queueSeq === 1) return []
  const messages = await db.message.findMany({
    where: { sessionId, position: { lt: queueSeq * 2 - 1 } },
    orderBy: { position: 'asc' },
    select: { role: true, content: true, execution: { select: { mediaIds: true } } },
  })
  return messages.map(({ role, content, execution }) => ({
    role,
    content,
    mediaIds: role === 'user' ? (execution.mediaIds as string[]) : [],
  }))
}

/** How much of pictures a model is shown at once. */
const MAX_PICTURES = 25 * 1024 * 1024

/**
 * What is attached to each turn: pictures, at later turns again, as far as they fit, the latest turn's first; of
 * anything else that there is such a file. What was deleted since is left out.
 */
async function readAttachments({ db, storage }: PromptDeps, organizationId: string, turns: readonly Turn[]) {
  const attached: (LanguageModelV4TextPart | LanguageModelV4FilePart)[][] = turns.map(() => [])
  const ids = turns.flatMap(({ mediaIds }) => mediaIds)
  if (!ids.length) return attached
  const rows = await db.media.findMany({ where: { organizationId, id: { in: [...new Set(ids)] } } })
  const known = new Map(rows.map((row) => [row.id, row]))
  let room = MAX_PICTURES
  for (const [index, { mediaIds }] of [...turns.entries()].reverse()) {
    for (const { id, name, mimeType, size } of mediaIds.flatMap((id) => known.get(id) ?? [])) {
      if (!PICTURES.has(mimeType) || size > room) {
        attached[index]?.push(text(`[Attached file: ${name} (${mimeType})]`))
        continue
      }
      const stream = await storage.read(id)
      if (!stream) continue
      room -= size
      const data = { type: 'data' as const, data: await buffer(stream) }
      attached[index]?.push({ type: 'file', mediaType: mimeType, filename: name, data })
    }
  }
  return attached
}

import { buffer } from 'node:stream/consumers'
import type { LanguageModelV4FilePart, LanguageModelV4Prompt, LanguageModelV4TextPart } from '@ai-sdk/provider'
import type { Db } from '../../db/client.ts'
import type { MediaStorage } from '../../media/storage.ts'
import type { AgentRow } from './claims.ts'
import type { ExecutionRow } from './events.ts'

type PromptDeps = { db: Db; storage: MediaStorage }

/** What the model is asked: the agent's prompt, the space's instructions, the session so far, the message. */
export async function buildPrompt(
  deps: PromptDeps,
  agent: AgentRow,
  execution: ExecutionRow,
): Promise<LanguageModelV4Prompt> {
  const { db } = deps
  const space = await db.space.findUniqueOrThrow({
    where: { id: execution.spaceId },
    select: { instructions: true },
  })
  const history =
    execution.queueSeq === 1
      ? []
      : await db.message.findMany({
          where: { sessionId: execution.sessionId, position: { lt: execution.queueSeq * 2 - 1 } },
          orderBy: { position: 'asc' },
          select: { role: true, content: true },
        })
  const system = [agent.systemPrompt, space.instructions].filter(Boolean).join('\n\n')
  return [
    { role: 'system', content: system },
    ...history.map(({ role, content }) => ({ role, content: [text(content)] })),
    { role: 'user', content: [text(execution.message), ...(await attachments(deps, execution))] },
  ]
}

const text = (content: string): LanguageModelV4TextPart => ({ type: 'text', text: content })

/** Images as they are; of anything else that there is such a file. What was deleted since is left out. */
async function attachments(
  { db, storage }: PromptDeps,
  { organizationId, mediaIds }: ExecutionRow,
): Promise<(LanguageModelV4TextPart | LanguageModelV4FilePart)[]> {
  const ids = mediaIds as string[]
  if (!ids.length) return []
  const rows = await db.media.findMany({ where: { organizationId, id: { in: ids } }, orderBy: { createdAt: 'asc' } })
  return Promise.all(
    rows.map(async ({ id, name, mimeType }) =>
      mimeType.startsWith('image/')
        ? {
            type: 'file',
            mediaType: mimeType,
            filename: name,
            data: { type: 'data', data: await buffer(storage.read(id)) },
          }
        : text(`[Attached file: ${name} (${mimeType})]`),
    ),
  )
}

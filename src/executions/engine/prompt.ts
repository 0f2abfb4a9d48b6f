import type { LanguageModelV4Prompt } from '@ai-sdk/provider'
import type { Db } from '../../db/client.ts'
import type { AgentRow } from './claims.ts'
import type { ExecutionRow } from './events.ts'

/** What the model is asked: the agent's prompt, the space's instructions, the session so far, the message. */
export async function buildPrompt(db: Db, agent: AgentRow, execution: ExecutionRow): Promise<LanguageModelV4Prompt> {
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
    ...history.map(({ role, content }) => ({ role, content: [{ type: 'text' as const, text: content }] })),
    { role: 'user', content: [{ type: 'text', text: execution.message }] },
  ]
}

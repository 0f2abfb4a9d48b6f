import { buffer } from 'node:stream/consumers'
import type {
  LanguageModelV4FilePart,
  LanguageModelV4Message,
  LanguageModelV4Prompt,
  LanguageModelV4TextPart,
} from '@ai-sdk/provider'
import type { Db } from '../../db/client.ts'
import { cut } from '../../lib/tool.ts'
import { PICTURES } from '../../media/schema.ts'
import type { MediaStorage } from '../../media/storage.ts'
import type { AgentRow } from './claims.ts'
import type { ExecutionRow } from './events.ts'
import { type CallRecord, isObject } from './steps.ts'

type PromptDeps = { db: Db; storage: MediaStorage }

type Turn = {
  role: 'user' | 'assistant'
  content: string
  toolCalls: readonly CallRecord[]
  mediaIds: readonly string[]
}

/**
 * What the model is asked: the agent's prompt and the instructions, the session so far, the message. `withCalls`: there
 * are tools, so that the model may be told of those it called before.
 */
export async function buildPrompt(
  deps: PromptDeps,
  agent: AgentRow,
  execution: ExecutionRow,
  { instructions, withCalls }: { instructions: readonly string[]; withCalls: boolean },
): Promise<LanguageModelV4Prompt> {
  const { message, organizationId } = execution
  const system = [agent.systemPrompt, ...instructions].join('\n\n')
  const asked: Turn = { role: 'user', content: message, toolCalls: [], mediaIds: execution.mediaIds as string[] }
  const turns = [...(await readHistory(deps, execution)), asked]
  const attached = await readAttachments(deps, organizationId, turns)
  return [
    { role: 'system', content: system },
    ...turns.flatMap(({ role, content, toolCalls }, index): LanguageModelV4Message[] => {
      if (role === 'user') return [{ role, content: [text(content), ...(attached[index] ?? [])] }]
      const answer: LanguageModelV4Message[] = content ? [{ role, content: [text(content)] }] : []
      return [...(withCalls && toolCalls.length ? recall(toolCalls, index) : []), ...answer]
    }),
  ]
}

/** How much of an earlier call's input and result a model is told again, in characters. */
const MAX_RECALLED = 1_000

/**
 * The calls of an earlier run, in brief. Their ids are made anew: the session's next model may be another provider's,
 * which would not take the first one's.
 */
function recall(calls: readonly CallRecord[], turn: number): LanguageModelV4Message[] {
  const called = calls.map(({ name, input, result, isError }, index) => {
    const whole = isObject(input) ? input : {}
    const json = JSON.stringify(whole)
    return {
      toolCallId: `call_${turn}_${index}`,
      toolName: name,
      input: json.length > MAX_RECALLED ? { cut: cut(json, MAX_RECALLED) } : whole,
      output: {
        type: isError || result === null ? ('error-text' as const) : ('text' as const),
        value: cut(result ?? 'The run ended before the tool answered', MAX_RECALLED),
      },
    }
  })
  return [
    { role: 'assistant', content: called.map(({ output, ...call }) => ({ type: 'tool-call', ...call })) },
    { role: 'tool', content: called.map(({ input, ...call }) => ({ type: 'tool-result', ...call })) },
  ]
}

const text = (content: string): LanguageModelV4TextPart => ({ type: 'text', text: content })

async function readHistory({ db }: PromptDeps, { sessionId, queueSeq }: ExecutionRow): Promise<Turn[]> {
  if (queueSeq === 1) return []
  const messages = await db.message.findMany({
    where: { sessionId, position: { lt: queueSeq * 2 - 1 } },
    orderBy: { position: 'asc' },
    select: { role: true, content: true, toolCalls: true, execution: { select: { mediaIds: true } } },
  })
  return messages.map(({ role, content, toolCalls, execution }) => ({
    role,
    content,
    toolCalls: toolCalls as CallRecord[],
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

import type { ChatEvent } from '../../../wire.ts'

// The output of a chat's active runs, assembled from their events.

export type LiveTool = {
  id: string
  name: string
  input: unknown
  result: string | null
  isError: boolean
  approvalId: string | null
  /** The MCP server that the run's user must connect to first. */
  signIn: { mcpId: string; mcpName: string } | null
}

export type LiveStep = { step: number; text: string; thinking: string; tools: LiveTool[] }

export type LiveRun = {
  executionId: string
  /** The number of the last included event. Repeated events are ignored. */
  seq: number
  sessionId: string | null
  steps: LiveStep[]
  warnings: string[]
  /** The reason of the current retry of the model. */
  retry: string | null
  /** The summary of earlier turns: its text, or `''` while the model writes it. */
  summary: string | null
  status: 'running' | 'completed' | 'failed' | 'cancelled'
  error: { message: string; code: string; detail: string | null } | null
}

export type Live = ReadonlyMap<string, LiveRun>

const newRun = (executionId: string): LiveRun => ({
  executionId,
  seq: 0,
  sessionId: null,
  steps: [],
  warnings: [],
  retry: null,
  summary: null,
  status: 'running',
  error: null,
})

/** Changes one step of a run, and creates it if it is new. */
function withStep(run: LiveRun, step: number, change: (step: LiveStep) => LiveStep): LiveRun {
  const found = run.steps.find((each) => each.step === step) ?? { step, text: '', thinking: '', tools: [] }
  const steps = [...run.steps.filter((each) => each.step !== step), change(found)].sort((a, b) => a.step - b.step)
  return { ...run, steps, retry: null, summary: run.summary || null }
}

const withTool = (run: LiveRun, id: string, change: Partial<LiveTool>): LiveRun => ({
  ...run,
  steps: run.steps.map((step) => ({
    ...step,
    tools: step.tools.map((tool) => (tool.id === id ? { ...tool, ...change } : tool)),
  })),
})

type MessageEvent = Extract<ChatEvent, { event: 'message' }>

function applyMessage(run: LiveRun, { data }: MessageEvent): LiveRun {
  switch (data.messageType) {
    case 'stream_event': {
      const { type, text } = data.delta
      return withStep(run, data.step, (step) =>
        type === 'text_delta' ? { ...step, text: step.text + text } : { ...step, thinking: step.thinking + text },
      )
    }
    case 'assistant': {
      const thinking = data.content.flatMap((block) => (block.type === 'thinking' ? block.text : [])).join('')
      const tools = data.content.flatMap((block): LiveTool[] =>
        block.type === 'tool_use'
          ? [
              {
                id: block.id,
                name: block.name,
                input: block.input,
                result: null,
                isError: false,
                approvalId: null,
                signIn: null,
              },
            ]
          : [],
      )
      // The whole step replaces its fragments.
      return withStep(run, data.step, (step) => ({
        step: step.step,
        text: data.text,
        thinking: thinking || step.thinking,
        tools: tools.map((tool) => step.tools.find(({ id }) => id === tool.id) ?? tool),
      }))
    }
    case 'tool_result':
      return withTool(run, data.toolUseId, {
        result: data.content,
        isError: data.isError,
        approvalId: null,
        signIn: null,
      })
    case 'approval':
      return withTool(run, data.toolUseId, { approvalId: data.approvalId })
    case 'authorization':
      return withTool(run, data.toolUseId, { signIn: { mcpId: data.mcpId, mcpName: data.mcpName } })
    case 'warning':
      return { ...run, warnings: [...run.warnings, data.text] }
    case 'retry':
      return { ...run, retry: data.reason }
    case 'summary':
      return { ...run, summary: data.text ?? '', retry: null }
    case 'resumed':
      // The fragments of that step start again.
      return { ...run, steps: run.steps.filter(({ step }) => step < data.step), retry: null }
    default:
      return run
  }
}

function applyToRun(run: LiveRun, event: ChatEvent): LiveRun {
  switch (event.event) {
    case 'meta':
      return { ...run, sessionId: event.data.sessionId }
    case 'message':
      return applyMessage(run, event)
    case 'result':
      return { ...run, status: 'completed', retry: null }
    case 'error': {
      const { message, code, detail = null, status } = event.data
      return { ...run, status, retry: null, error: { message, code, detail } }
    }
    default:
      return run
  }
}

/**
 * Adds an event of a chat to the state. A repeated event changes nothing, so that a connection may repeat some. After a
 * `reset` all messages are read again.
 */
export function apply(live: Live, event: ChatEvent): Live {
  if (event.event === 'reset') return new Map()
  if (event.event === 'status' || event.executionId === null) return live
  const run = live.get(event.executionId) ?? newRun(event.executionId)
  if (event.seq <= run.seq) return live
  return new Map(live).set(event.executionId, { ...applyToRun(run, event), seq: event.seq })
}

/** Lists the approvals that a run waits for. */
export const waitingIn = (run: LiveRun): LiveTool[] =>
  run.steps.flatMap(({ tools }) => tools.filter(({ approvalId, result }) => approvalId !== null && result === null))

/** Lists the MCP servers that a run's user must connect to first, each once. */
export const signInsOf = (run: LiveRun): { mcpId: string; mcpName: string }[] => {
  const needed = run.steps.flatMap(({ tools }) =>
    tools.flatMap(({ signIn, result }) => (signIn && !result ? signIn : [])),
  )
  return [...new Map(needed.map((signIn) => [signIn.mcpId, signIn])).values()]
}

/** Joins all texts of a run. */
export const textOf = (run: LiveRun): string => run.steps.map(({ text }) => text).join('\n\n')

import type { Logger } from 'pino'
import { covers } from '../../../auth/scopes.ts'
import type { Db } from '../../../db/client.ts'
import { lacksScope } from '../../../errors.ts'
import { omitUndefined } from '../../../lib/changes.ts'
import type { Clock } from '../../../lib/clock.ts'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import { type Output, outputOf } from '../../../lib/output.ts'
import { raceAbort } from '../../../lib/race-abort.ts'
import type { MediaStorage } from '../../../media/storage.ts'
import type { Settings } from '../../../settings.ts'
import type { ExecutionRow } from '../events/events.ts'
import { withoutWords } from '../models/model-errors.ts'
import type { Models } from '../models/models.ts'
import { readAuthority } from '../queue/authority.ts'
import type { AgentRow } from '../queue/claims.ts'
import { clientToolName, toClientTool } from '../queue/client-tools.ts'
import type { Overrides } from '../queue/requests.ts'
import { TimeoutError } from './abort.ts'
import { type Asking, type AskingDeps, createAsking } from './asking.ts'
import { offerable } from './offers.ts'
import { buildPrompt } from './prompt.ts'
import type { RunInput } from './run.ts'
import { type ReadSpace, readSpace } from './space.ts'
import { createStepStore } from './steps.ts'
import { maxHistoryOf } from './stored-history.ts'
import { createSummarizer, type SummarizerDeps } from './summarizer.ts'
import type { OpenTools, Tool, Toolbox, ToolUser } from './tools.ts'
import type { Warn } from './warnings.ts'

export type PrepareDeps = {
  settings: Settings
  db: Db
  clock: Clock
  log: Logger
  models: Models
  /** State shared by the model requests of all runs of this process. */
  asking: Pick<AskingDeps, 'breaker' | 'knowledge'>
  /** Aborts as soon as this process starts to shut down. */
  draining: AbortSignal
  storage: MediaStorage
  openTools: OpenTools
}

/** A run that starts or resumes in this process. */
export type Attempt = {
  row: ExecutionRow
  agent: AgentRow
  controller: AbortController
  warn: Warn
  /** Its space, if it is being read already. */
  space?: ReadSpace | undefined
}

const DEFAULT_MAX_TURNS = 50
const NOTHING: Toolbox = { tools: [], instructions: [], close: async () => {} }

/**
 * Prepares a run: its model, its tools, which are closed with it, and its prompt. `answered`: the model that answered
 * last, if the run resumes. Throws if the run cannot proceed.
 */
export async function prepareRun(
  deps: PrepareDeps,
  attempt: Attempt,
  answered: string | null,
): Promise<{ input: RunInput; toolbox: Toolbox }> {
  const { settings, db, log } = deps
  const { row, agent, controller, warn } = attempt
  const output = (row.overrides as Overrides).output ?? outputOf(agent.output)
  const asking = await choose(deps, attempt, answered, output)
  const space = (await attempt.space) ?? (await readSpace(db, row.spaceId))
  const needsTools = hasTools(agent) || space.hasTools
  const toolbox = needsTools ? await open(deps, attempt) : NOTHING
  const clientTools = ((row.overrides as Overrides).clientTools ?? []).filter(({ isFormer }) => !isFormer)
  const withClients = (opened: readonly Tool[]) =>
    offerable(
      clientTools.length ? [...opened, ...clientTools.map(toClientTool)] : opened,
      agent.allowedTools as string[],
      warn,
    )
  const tools = withClients(toolbox.tools)
  const { refresh } = toolbox
  const instructions = [space.instructions, ...toolbox.instructions].flatMap((text) => text || [])
  try {
    const built = await buildPrompt(deps, agent, row, { instructions, withCalls: tools.length > 0, warn })
    const { prompt, past } = built
    const hasSummaries = agent.history === 'summarize' && past.length > 0
    const input: RunInput = {
      asking,
      prompt,
      question: prompt.length - 1,
      summarizer: hasSummaries ? createSummarizer(summarizerDeps(deps, attempt), built) : null,
      tools,
      ...(refresh && {
        async refreshTools() {
          const changed = await refresh()
          return changed && withClients(changed)
        },
      }),
      ...(toolbox.whyMissing && { whyMissing: toolbox.whyMissing }),
      output,
      maxTurns: agent.maxTurns ?? DEFAULT_MAX_TURNS,
      idleTimeout: settings.MODEL_IDLE_TIMEOUT,
      toolTimeout: settings.TOOL_TIMEOUT,
      steps: () => createStepStore({ ...deps, leaseDuration: settings.LEASE_DURATION, signal: controller.signal }, row),
      onToolError: (tool, error) => log.warn({ executionId: row.id, tool, err: error }, 'a tool failed'),
      warn,
      draining: deps.draining,
      controller,
    }
    return { input, toolbox }
  } catch (error) {
    close(deps, toolbox)
    throw error
  }
}

function summarizerDeps(deps: PrepareDeps, attempt: Attempt): SummarizerDeps {
  const { row, warn } = attempt
  const openAsking = (model: string) => choose(deps, attempt, model, null, plain)
  const describe = (error: unknown) => {
    if (error instanceof TimeoutError) return error.message
    const cause = deps.models.describeError(error, row.organizationId)
    deps.log.warn({ executionId: row.id, detail: withoutWords(cause) }, 'failed to summarize the history of a run')
    return isOwn(attempt) ? cause : withoutWords(cause)
  }
  return { maxHistory: maxHistoryOf(deps.settings), openAsking, describe, warn }
}

/** Returns the settings that apply to a summary: the others are about the form of answers. */
function plain({ temperature, topP, seed, reasoningEffort, providerOptions }: ModelSettings): ModelSettings {
  return omitUndefined({ temperature, topP, seed, reasoningEffort, providerOptions })
}

/** Returns whether the agent belongs to the organization of the run, which may read its provider's messages. */
const isOwn = ({ row }: Attempt): boolean => row.agentOrganizationId === row.organizationId

/** Chooses the models and settings of a run. The caller's choice overrides the agent's. */
function choose(
  { asking, settings, models, log }: PrepareDeps,
  attempt: Attempt,
  answered: string | null,
  output: Output | null,
  change: (settings: ModelSettings) => ModelSettings = (given) => given,
): Promise<Asking> {
  const { row, agent, warn } = attempt
  const { modelSettings, demandedTool, fallbackModels = agent.fallbackModels as string[] } = row.overrides as Overrides
  return createAsking(
    { ...asking, models, retries: settings.MODEL_RETRIES },
    {
      names: [row.modelOverride ?? agent.model, ...fallbackModels],
      organizationId: row.organizationId,
      settings: change({ ...(agent.modelSettings as ModelSettings), ...modelSettings }),
      output,
      contextWindow: agent.contextWindow,
      agentName: agent.name,
      isOwn: isOwn(attempt),
      sessionId: row.sessionId,
      answered,
      demandedTool: demandedTool === undefined ? null : clientToolName(demandedTool),
      warn(code, text) {
        if (code === 'model_fallback')
          log.warn({ executionId: row.id, detail: text }, 'a run continues with another model')
        warn(code, text)
      },
    },
  )
}

/** Returns whether an agent may have tools. Most have none, so their runs skip the query. */
const hasTools = ({ skillIds, mcpInstanceIds, mcpTypes, subagentIds, allowedTools }: AgentRow): boolean =>
  [skillIds, mcpInstanceIds, mcpTypes, subagentIds, allowedTools].some((list) => (list as string[]).length > 0)

/** Returns the context in which the tools of a run are opened. */
export const toolUser = (db: Db, { row, agent, controller, warn }: Attempt): ToolUser => ({
  row,
  agent,
  warn,
  signal: controller.signal,
  async actor(needed) {
    const { actor } = await readAuthority(db, row, null)
    if (needed && !covers(actor.scopes, needed)) throw lacksScope(needed)
    return actor
  },
  server: async (id) => (await readAuthority(db, row, id)).server,
})

/** Tools that finish opening after the run was stopped are closed at once. */
async function open(deps: PrepareDeps, attempt: Attempt): Promise<Toolbox> {
  const { signal } = attempt.controller
  const opening = deps.openTools(toolUser(deps.db, attempt))
  const toolbox = await raceAbort(opening, signal)
  if (toolbox) return toolbox
  opening.then(
    (late) => close(deps, late),
    () => {},
  )
  throw signal.reason
}

/** Closes tools without waiting for their servers. */
export function close({ log }: Pick<PrepareDeps, 'log'>, toolbox: Toolbox): void {
  toolbox.close().catch((error) => log.warn({ err: error }, 'failed to close the tools of a run'))
}

import type { LanguageModelV4Prompt, SharedV4Warning } from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Output } from '../../../lib/output.ts'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import type { MessageData, Warning } from '../events/events.ts'
import { bodyFieldsOf, ignoredIn, isCompatible, loweredLimitIn, otherValuesIn } from '../models/call-settings.ts'
import { classifyModelError, ReportedError, withoutWords } from '../models/model-errors.ts'
import type { ModelFailure } from '../models/model-failures.ts'
import type { ModelKnowledge } from '../models/model-knowledge.ts'
import type { Models } from '../models/models.ts'
import type { Breaker } from './breaker.ts'
import { type Change, isOfModel, isOfSession } from './change.ts'
import { ignoredSetting, loweredLimit, otherValue, warningOf } from './change-warnings.ts'
import { type ComposedRequest, composeRequest, type ModelRequest } from './compose-request.ts'
import { lessonOf, recall, type Values } from './lessons.ts'
import { type ChosenModel, openChain } from './model-chain.ts'
import { offersOf } from './offers.ts'
import { changesFor } from './rejections.ts'
import { hasDocuments, hasFiles } from './request-changes.ts'
import { maxPromptSize, shorterSize } from './shorten.ts'
import type { Tool } from './tools.ts'
import type { Warn } from './warnings.ts'

/** Dependencies shared by all runs of a process. */
export type AskingDeps = {
  models: Pick<Models, 'resolve'>
  breaker: Breaker
  knowledge: ModelKnowledge
  /** MODEL_RETRIES. */
  retries: number
}

/** Models of one run and how to ask them. */
export type AskingInput = {
  /** Its model (null for the default model), then its fallback models. */
  names: readonly (string | null)[]
  organizationId: string
  settings: ModelSettings
  /** Form of the answer; null for plain text. */
  output: Output | null
  /** Size of the model's context window (tokens), if the agent states it. */
  contextWindow: number | null
  agentName: string
  /** Whether events of the run may repeat the provider's messages. */
  isOwn: boolean
  /** Files that a provider refused are left out of the next turns of a session. */
  sessionId: string
  /** The full id of the model that answered last, if the run resumes. */
  answered: string | null
  /** The tool that the first step has to call, if the settings require a call; null for any. */
  demandedTool: string | null
  warn: Warn
}

/**
 * A request to send after a failure: at once, or after a wait that is published to subscribers. `isTooLong`: the prompt
 * was too long, and is shortened unless its history is summarized first.
 */
export type Again = { retry: Extract<MessageData, { messageType: 'retry' }> | null; isTooLong?: boolean }

/** Asks the models of one run: settings, changed requests, retries and fallback (contract-2.md sections 2.1 to 2.3). */
export type Asking = {
  /** The model that is asked now. */
  current(): ChosenModel
  /** Models that were asked or skipped before. */
  tried(): readonly string[]
  /** Returns the maximum size of a prompt beside the tools (bytes), if it is known: infinite otherwise. */
  capacity(tools: readonly Tool[]): number
  /** Makes a request. `question` is the index of the message that the run answers. */
  request(prompt: LanguageModelV4Prompt, tools: readonly Tool[], question: number, step: number): ModelRequest
  /** Records that the model has begun to answer. */
  answered(): void
  /** Reads the warnings of a provider package about the settings of a request. */
  readWarnings(warnings: readonly SharedV4Warning[]): void
  /**
   * Decides how to handle a failure of the last request that happened before any output. Returns null if nothing is
   * left to try.
   */
  recover(error: unknown): Promise<Again | null>
}

/** Maximum number of changed requests in a step. */
const MAX_CHANGES = 8
/** Maximum wait that a provider may ask for, and maximum initial wait of our own (ms). */
const MAX_RETRY_AFTER = 60_000
const BACKOFF = 500

/** Returns a fresh count of the retries and changes for the current model in a step. */
const unasked = (step: number) => ({
  step,
  retries: 0,
  changes: 0,
  shortened: 0,
  isRepeated: false,
  isRenewed: false,
  /** The last change, and the refusal that it followed. */
  changed: null as { change: Change; detail: string } | null,
})

const AT_ONCE: Again = { retry: null }

/** Prepares a run to ask the first of its models that can be asked. Throws a `ModelError` if none can. */
export async function createAsking(
  { models, breaker, knowledge, retries }: AskingDeps,
  {
    names,
    organizationId,
    settings,
    output,
    contextWindow,
    agentName,
    isOwn,
    sessionId,
    answered,
    demandedTool,
    warn,
  }: AskingInput,
): Promise<Asking> {
  const chain = await openChain({ models, breaker, organizationId, warn }, names, answered)
  const keyOf = () => `${organizationId} ${chain.current().id}`
  const sessionKey = () => `${sessionId} ${chain.current().id}`
  const known = () => recall([...lessons.changes, ...knowledge.of(sessionKey()).changes], valuesOfSettings)
  let lessons = knowledge.of(keyOf())
  /** Changes of the requests to the current model, and those among them that are not remembered yet, with their lessons. */
  let changes = known()
  let unlearned = new Map<Change, string>()
  let { maxSize } = lessons
  let done = unasked(0)
  let last: ComposedRequest | null = null
  /** Index of the first message whose reasoning belongs to the current model. */
  let ownFrom = 0

  /** Returns the settings of the run, and the fields that they merge into the body, by the changes that leave them out. */
  function valuesOfSettings(): Values {
    const fields = bodyFieldsOf(settings, { provider: chain.current().model.provider, hasTools: true })
    return new Map(Object.entries({ ...settings, ...prefixed(fields) }))
  }

  const add = ({ code, text }: Warning) => warn(code, text)
  const ignored = (name: string) => add(ignoredSetting(chain.current().id, name))

  /** Makes the first of these changes that was not made yet. Returns false if there is none. */
  function changeOne(offered: readonly Change[], { detail }: ModelFailure): boolean {
    // A change after which the provider repeats its refusal has not helped.
    if (done.changed?.detail === detail) unlearned.delete(done.changed.change)
    const next = offered.find((each) => !changes.has(each))
    if (!next || done.changes === MAX_CHANGES) return false
    done.changes++
    done.changed = { change: next, detail }
    changes.add(next)
    if (isOfModel(next) || isOfSession(next)) unlearned.set(next, lessonOf(next, offered, valuesOfSettings()))
    return true
  }

  /** Adds the changes that the model needs although it has not rejected the request, and warns of all changes. */
  function expectChanges(prompt: LanguageModelV4Prompt): void {
    const { id, model } = chain.current()
    const withFiles = hasFiles(prompt)
    if (model.provider === 'offline' && withFiles) changes.add('files')
    // Most compatible servers refuse documents or ignore them silently.
    if (withFiles && isCompatible(model.provider) && hasDocuments(prompt)) changes.add('documents')
    for (const each of changes) {
      const warning = warningOf(each, { model: id, settings, hasFiles: withFiles })
      if (warning) add(warning)
    }
  }

  function shortenFurther(failure: ModelFailure): boolean {
    if (!last) return false
    const next = shorterSize(failure, last, ++done.shortened)
    maxSize = next ?? maxSize
    return next !== null
  }

  function capacity(tools: readonly Tool[]): number {
    const stated =
      contextWindow === null ? null : maxPromptSize(contextWindow, settings.maxOutputTokens, offersOf(tools))
    return Math.min(maxSize ?? Number.POSITIVE_INFINITY, stated ?? Number.POSITIVE_INFINITY)
  }

  /** Returns whether the same request is sent once more. */
  function repeatOnce(): boolean {
    const isFirst = !done.isRepeated
    done.isRepeated = true
    return isFirst
  }

  /** Returns whether the same request may succeed at once: after a broken connection, or with a newer key. */
  async function isRepeatable(failure: ModelFailure, error: unknown): Promise<boolean> {
    if (isResetBeforeAnswer(error) && repeatOnce()) return true
    // The key may have been replaced since the run began.
    if (done.isRenewed || !REPLACEABLE.has(failure.kind) || !(await chain.renew())) return false
    done.isRenewed = true
    return true
  }

  /** Changes or shortens the next request so that the model may accept it. Returns null if nothing is left to change. */
  function mend(failure: ModelFailure): Again | null {
    if (last && changeOne(changesFor(failure, last.facts), failure)) return AT_ONCE
    if (failure.kind !== 'context_too_long') return null
    // A default limit of the answer is given up before any history.
    const hasDefault = last?.facts.settings.maxOutputTokens !== settings.maxOutputTokens
    if (hasDefault && changeOne(['maxOutputTokens'], failure)) return AT_ONCE
    if (shortenFurther(failure)) return { retry: null, isTooLong: true }
    // If nothing is left to shorten, the limit of the answer may be the part that does not fit.
    return settings.maxOutputTokens !== undefined && changeOne(['maxOutputTokens'], failure) ? AT_ONCE : null
  }

  /** Decides on a failure that no change mends: the model is asked again later, or another one at once. */
  async function retryOrFallBack(failure: ModelFailure, isBroken: boolean): Promise<Again | null> {
    const { circuit } = chain.current()
    const reason = withoutWords(failure.detail)
    const isRetryable = failure.retryable && failure.kind !== 'context_too_long'
    if (isRetryable) breaker.failed(circuit)
    const isSkipped = chain.hasNext() && breaker.isOpen(circuit)
    if (isRetryable && done.retries < retries && !isSkipped) {
      const afterMs = delayOf(failure, done.retries++)
      const { retries: attempt } = done
      return { retry: { messageType: 'retry', attempt, afterMs, reason: isOwn ? failure.detail : reason } }
    }
    return isRetryable || isBroken || FALLS_BACK.has(failure.kind) ? fallBack(reason) : null
  }

  async function fallBack(reason: string): Promise<Again | null> {
    const { id } = chain.current()
    if (!(await chain.next())) return null
    warn('model_fallback', `The model ${id} failed (${reason}): the run continues with ${chain.current().id}`)
    lessons = knowledge.of(keyOf())
    changes = known()
    unlearned = new Map()
    maxSize = lessons.maxSize
    done = unasked(done.step)
    ownFrom = last?.messages ?? 0
    return AT_ONCE
  }

  return {
    current: chain.current,
    tried: chain.tried,
    capacity,

    request(prompt, tools, question, step) {
      if (step !== done.step) done = unasked(step)
      expectChanges(prompt)
      const { request, composed } = composeRequest(
        {
          model: chain.current().model,
          agentName,
          settings,
          output,
          demandedTool,
          changes,
          ownFrom,
          maxSize: capacity(tools),
          ignored,
        },
        { prompt, tools, question, step },
      )
      last = composed
      return request
    },

    answered() {
      breaker.succeeded(chain.current().circuit)
      const lessonsThat = (apply: (change: Change) => boolean) =>
        [...unlearned].flatMap(([change, lesson]) => (apply(change) ? lesson : []))
      const ofSession = lessonsThat(isOfSession)
      const ofModel = lessonsThat(isOfModel)
      if (ofModel.length) knowledge.learn(keyOf(), { changes: ofModel })
      if (ofSession.length) knowledge.learn(sessionKey(), { changes: ofSession })
      if (done.shortened && maxSize !== null) knowledge.learn(keyOf(), { maxSize })
      unlearned = new Map()
    },

    readWarnings(warnings) {
      if (!warnings.length) return
      const limit = loweredLimitIn(warnings)
      for (const name of otherValuesIn(warnings, settings)) add(otherValue(chain.current().id, name, settings[name]))
      for (const name of ignoredIn(warnings, settings)) {
        if (limit && name === 'maxOutputTokens') add(loweredLimit(chain.current().id, limit))
        else ignored(name)
      }
    },

    async recover(error) {
      const failure = classifyModelError(error, { provider: chain.current().provider })
      if (await isRepeatable(failure, error)) return AT_ONCE
      const isBroken = isBrokenOff(failure, error)
      return mend(failure) ?? (isBroken && repeatOnce() ? AT_ONCE : retryOrFallBack(failure, isBroken))
    },
  }
}

const prefixed = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).map(([name, value]) => [`extra:${name}`, value]))

/**
 * Returns whether a reply broke off before any output, such as one that the provider (Gemini, Groq) could not read itself,
 * or one that ended with an error of an unknown kind (Ollama). It mostly succeeds at once.
 */
const isBrokenOff = ({ kind }: ModelFailure, error: unknown): boolean =>
  kind === 'broken_off' || (kind === 'unknown' && error instanceof ReportedError)

/** Failures that another key may repair. */
const REPLACEABLE: ReadonlySet<string> = new Set(['auth', 'quota'])

/** Failures that fall back to another model although they are not retried. */
const FALLS_BACK: ReadonlySet<string> = new Set(['unknown_model', 'not_configured'])

function delayOf({ retryAfter }: ModelFailure, retries: number): number {
  if (retryAfter !== null && retryAfter <= MAX_RETRY_AFTER) return Math.ceil(retryAfter)
  return Math.round(BACKOFF * 2 ** retries * (0.75 + Math.random() / 2))
}

const RESETS = /ECONNRESET|EPIPE|UND_ERR_SOCKET|other side closed|socket hang up/

/**
 * Returns whether the connection broke before the answer began, for example because the server closed it while it was
 * idle.
 */
function isResetBeforeAnswer(error: unknown): boolean {
  let cause = asObject(error)
  if (!/^Cannot connect to API/.test(asText(cause.message))) return false
  for (let depth = 0; depth < 8; depth++, cause = asObject(cause.cause)) {
    if (RESETS.test(`${asText(cause.code)} ${asText(cause.message)}`)) return true
  }
  return false
}

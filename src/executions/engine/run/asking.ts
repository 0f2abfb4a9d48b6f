import type { LanguageModelV4Prompt, SharedV4Warning } from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Output } from '../../../lib/output.ts'
import { asObject, asText, type Fields } from '../../../lib/unknown.ts'
import type { MessageData, Warning } from '../events/events.ts'
import {
  bodyFieldsOf,
  defaultsOf,
  ignoredIn,
  isCompatible,
  loweredLimitIn,
  optionsOf,
} from '../models/call-settings.ts'
import { classifyModelError, withoutWords } from '../models/model-errors.ts'
import type { ModelFailure } from '../models/model-failures.ts'
import type { ModelKnowledge } from '../models/model-knowledge.ts'
import type { Models } from '../models/models.ts'
import { formatOf, withSchema } from '../models/output-format.ts'
import type { CallOptions } from '../models/text-model.ts'
import type { Breaker } from './breaker.ts'
import { type Change, isOfModel, isOfSession, refusesOutput } from './change.ts'
import { ignoredSetting, loweredLimit, warningOf } from './change-warnings.ts'
import { type ChosenModel, openChain } from './model-chain.ts'
import { offersOf } from './offers.ts'
import type { Asked } from './rejection-rules.ts'
import { changesFor } from './rejections.ts'
import { changeBody, changePackagedBody, reservedIn } from './request-bodies.ts'
import * as changed from './request-changes.ts'
import { maxPromptSize, shorten, shorterSize } from './shorten.ts'
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

/**
 * Options of a request. `picturesApart`: pictures in results of tools become those of a user; the model's API decides if
 * absent.
 */
export type ModelRequest = CallOptions & { picturesApart?: boolean }

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
})

/** The last request: its prompt before it was shortened, and the facts that decide changes. */
type LastRequest = {
  prompt: LanguageModelV4Prompt
  question: number
  messages: number
  asked: Asked
  sent: LanguageModelV4Prompt
}

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
  const known = () => new Set([...lessons.changes, ...knowledge.of(sessionKey()).changes])
  let lessons = knowledge.of(keyOf())
  /** Changes of the requests to the current model, and those among them that are not remembered yet. */
  let changes = known()
  let unlearned = new Set<Change>()
  let { maxSize } = lessons
  let done = unasked(0)
  let last: LastRequest | null = null
  /** Index of the first message whose reasoning belongs to the current model. */
  let ownFrom = 0

  const add = ({ code, text }: Warning) => warn(code, text)
  const ignored = (name: string) => add(ignoredSetting(chain.current().id, name))

  const change = (failure: ModelFailure): boolean => last !== null && changeOne(changesFor(failure, last.asked))

  /** Makes the first of these changes that was not made yet. Returns false if there is none. */
  function changeOne(offered: readonly Change[]): boolean {
    const next = offered.find((each) => !changes.has(each))
    if (!next || done.changes === MAX_CHANGES) return false
    done.changes++
    changes.add(next)
    if (isOfModel(next) || isOfSession(next)) unlearned.add(next)
    return true
  }

  /** Adds the changes that the model needs although it has not rejected the request, and warns of all changes. */
  function expectChanges(prompt: LanguageModelV4Prompt): void {
    const { id, model } = chain.current()
    const hasFiles = changed.hasFiles(prompt)
    if (model.provider === 'offline' && hasFiles) changes.add('files')
    // Most compatible servers refuse documents or ignore them silently.
    if (hasFiles && isCompatible(model.provider) && changed.hasDocuments(prompt)) changes.add('documents')
    for (const each of changes) {
      const warning = warningOf(each, { model: id, settings, hasFiles })
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

  async function fallBack(reason: string): Promise<Again | null> {
    const { id } = chain.current()
    if (!(await chain.next())) return null
    warn('model_fallback', `The model ${id} failed (${reason}): the run continues with ${chain.current().id}`)
    lessons = knowledge.of(keyOf())
    changes = known()
    unlearned = new Set()
    maxSize = lessons.maxSize
    done = unasked(done.step)
    ownFrom = last?.messages ?? 0
    return AT_ONCE
  }

  return {
    current: chain.current,
    tried: chain.tried,
    capacity,

    request(given, tools, answers, step) {
      if (step !== done.step) done = unasked(step)
      const { provider } = chain.current().model
      expectChanges(given)
      const offered = [...offersOf(tools)]
      const acceptable = changed.changeTools(offered, changes)
      const isOffered = demandedTool !== null && acceptable.some(({ name }) => name === demandedTool)
      const call = {
        provider,
        hasTools: acceptable.length > 0,
        isFirst: step === 1,
        demandedTool: isOffered ? demandedTool : null,
      }
      const all = { ...defaultsOf(chain.current().model), ...settings }
      const kept = changed.changeSettings(all, changes)
      const fields = isCompatible(provider) ? bodyFieldsOf(kept, call) : {}
      for (const name of reservedIn(fields)) ignored(`providerOptions.compatible.${name}`)
      // Counted from the end, because changes only remove messages before the question.
      const fromEnd = given.length - answers
      const own = ownFrom
        ? given.flatMap((message, index) => (index < ownFrom ? changed.withoutReasoning(message) : message))
        : given
      // Local servers constrain a reply from its first token, so that it could call no tool. The request to answer
      // again stands behind the question.
      const isAgain = given.at(-1)?.role === 'user' && given.length - 1 > answers
      const mayCall = isCompatible(provider) && call.hasTools && kept.toolChoice !== 'none' && !isAgain
      const isInWords = output !== null && (mayCall || refusesOutput(changes))
      const prompt = changed.changePrompt(isInWords ? withSchema(own, output, mayCall) : own, changes)
      const question = prompt.length - fromEnd
      const limit = capacity(tools)
      const fitted = limit === Number.POSITIVE_INFINITY ? prompt : shorten(prompt, question, limit)
      const asked = {
        prompt: own,
        question: own.length - fromEnd,
        tools: offered,
        settings: all,
        hasOutput: output !== null && !isInWords,
        fields,
        isCompatible: isCompatible(provider),
      }
      last = { prompt, question, messages: given.length, asked, sent: fitted }
      const plain = optionsOf(kept, call, ignored)
      const options = {
        ...plain,
        ...(output && !isInWords && formatOf(output, provider, plain.providerOptions)),
      }
      const isChanged = changes.size > 0 || Object.keys(fields).length > 0
      return {
        prompt: changed.changeSystem(fitted, changes),
        ...(acceptable.length && { tools: acceptable }),
        ...options,
        ...(provider === 'offline' && { providerOptions: { offline: { agentName } } }),
        ...(changes.has('pictures_apart') && { picturesApart: true }),
        ...(changes.has('omit:anthropic-beta') && { omitHeaders: ['anthropic-beta'] }),
        ...(isChanged && {
          changeBody: (body: Fields) =>
            isCompatible(provider) ? changeBody(body, fields, changes) : changePackagedBody(body, changes),
        }),
      }
    },

    answered() {
      breaker.succeeded(chain.current().circuit)
      const ofSession = [...unlearned].filter(isOfSession)
      const ofModel = [...unlearned].filter(isOfModel)
      if (ofModel.length) knowledge.learn(keyOf(), { changes: ofModel })
      if (ofSession.length) knowledge.learn(sessionKey(), { changes: ofSession })
      if (done.shortened && maxSize !== null) knowledge.learn(keyOf(), { maxSize })
      unlearned = new Set()
    },

    readWarnings(warnings) {
      if (!warnings.length) return
      const limit = loweredLimitIn(warnings)
      for (const name of ignoredIn(warnings, settings)) {
        if (limit && name === 'maxOutputTokens') add(loweredLimit(chain.current().id, limit))
        else ignored(name)
      }
    },

    async recover(error) {
      const { provider, circuit } = chain.current()
      const failure = classifyModelError(error, { provider })
      // A reply that broke off before any output, such as one that the provider (Gemini) could not read itself, mostly
      // succeeds at once. Others refuse theirs with 400 (Groq's `tool_use_failed`), which is never repeated.
      if (!done.isRepeated && (isResetBeforeAnswer(error) || failure.kind === 'broken_off')) {
        done.isRepeated = true
        return AT_ONCE
      }
      // The key may have been replaced since the run began.
      if (!done.isRenewed && REPLACEABLE.has(failure.kind) && (await chain.renew())) {
        done.isRenewed = true
        return AT_ONCE
      }
      const isTooLong = failure.kind === 'context_too_long'
      if (change(failure)) return AT_ONCE
      // A default limit of the answer is given up before any history.
      const hasDefault = last?.asked.settings.maxOutputTokens !== settings.maxOutputTokens
      if (isTooLong && hasDefault && changeOne(['maxOutputTokens'])) return AT_ONCE
      if (isTooLong && shortenFurther(failure)) return { retry: null, isTooLong }
      // If nothing is left to shorten, the limit of the answer may be the part that does not fit.
      if (isTooLong && settings.maxOutputTokens !== undefined && changeOne(['maxOutputTokens'])) return AT_ONCE
      const reason = withoutWords(failure.detail)
      const isRetryable = failure.retryable && !isTooLong
      if (isRetryable) breaker.failed(circuit)
      const isSkipped = chain.hasNext() && breaker.isOpen(circuit)
      if (isRetryable && done.retries < retries && !isSkipped) {
        const afterMs = delayOf(failure, done.retries++)
        return {
          retry: { messageType: 'retry', attempt: done.retries, afterMs, reason: isOwn ? failure.detail : reason },
        }
      }
      return isRetryable || FALLS_BACK.has(failure.kind) ? fallBack(reason) : null
    },
  }
}

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

import type { LanguageModelV4Prompt } from '@ai-sdk/provider'
import type { ModelSettings } from '../../../lib/model-settings.ts'
import type { Output } from '../../../lib/output.ts'
import type { Fields } from '../../../lib/unknown.ts'
import { bodyFieldsOf, type Call, defaultsOf, isCompatible, optionsOf } from '../models/call-settings.ts'
import { formatOf, withSchema } from '../models/output-format.ts'
import type { CallOptions, TextModel } from '../models/text-model.ts'
import { type Changes, refusesOutput } from './change.ts'
import { offersOf } from './offers.ts'
import type { RequestFacts } from './rejection-rules.ts'
import { changeBody, changePackagedBody, reservedIn } from './request-bodies.ts'
import { changePrompt, changeSettings, changeSystem, changeTools, withoutReasoning } from './request-changes.ts'
import { shorten } from './shorten.ts'
import type { Tool } from './tools.ts'

/**
 * Options of a request. `picturesApart`: pictures in results of tools become those of a user; the model's API decides
 * if absent.
 */
export type ModelRequest = CallOptions & { picturesApart?: boolean }

/** A request as it was composed: its prompt before it was shortened, and the facts that decide changes. */
export type ComposedRequest = {
  prompt: LanguageModelV4Prompt
  question: number
  messages: number
  facts: RequestFacts
  sent: LanguageModelV4Prompt
}

/** The contents of a request. */
export type Contents = {
  prompt: LanguageModelV4Prompt
  tools: readonly Tool[]
  /** Index of the message that the run answers. */
  question: number
  step: number
}

/** The model that a request goes to, and what this model needs. */
export type Target = {
  model: TextModel
  agentName: string
  settings: ModelSettings
  /** Form of the answer; null for plain text. */
  output: Output | null
  /** The tool that the first step has to call, if the settings require a call; null for any. */
  demandedTool: string | null
  /** Changes that the model needs. */
  changes: Changes
  /** Index of the first message whose reasoning belongs to the model. */
  ownFrom: number
  /** Maximum size of the prompt (bytes; see {@link shorten}). */
  maxSize: number
  /** Called with the name of each setting that the request cannot have. */
  ignored: (name: string) => void
}

/** Composes a request to a model from its contents, with the settings and changes of this model. */
export function composeRequest(
  target: Target,
  contents: Contents,
): { request: ModelRequest; composed: ComposedRequest } {
  const { model, agentName, output, changes, ignored } = target
  const { provider } = model
  const offered = [...offersOf(contents.tools)]
  const acceptable = changeTools(offered, changes)
  const call = callOf(target, acceptable, contents.step)
  const all = { ...defaultsOf(model), ...target.settings }
  const kept = changeSettings(all, changes)
  const fields = isCompatible(provider) ? bodyFieldsOf(kept, call) : {}
  for (const name of reservedIn(fields)) ignored(`providerOptions.compatible.${name}`)
  const { own, isInWords, ...arranged } = promptOf(target, contents, call.hasTools && kept.toolChoice !== 'none')
  const facts: RequestFacts = {
    prompt: own,
    question: own.length - fromEnd(contents),
    tools: offered,
    settings: all,
    hasOutput: output !== null && !isInWords,
    fields,
    isCompatible: isCompatible(provider),
  }
  const options = optionsOf(kept, call, ignored)
  const request = {
    prompt: changeSystem(arranged.sent, changes),
    ...(acceptable.length && { tools: acceptable }),
    ...options,
    ...(output && !isInWords && formatOf(output, provider, options.providerOptions)),
    ...(provider === 'offline' && { providerOptions: { offline: { agentName } } }),
    ...(changes.has('pictures_apart') && { picturesApart: true }),
    ...(changes.has('omit:anthropic-beta') && { omitHeaders: ['anthropic-beta'] }),
    ...((changes.size > 0 || Object.keys(fields).length > 0) && {
      changeBody: (body: Fields) =>
        isCompatible(provider) ? changeBody(body, fields, changes) : changePackagedBody(body, changes),
    }),
  }
  return { request, composed: { ...arranged, messages: contents.prompt.length, facts } }
}

/** Returns the facts that settings depend on. */
function callOf({ model, demandedTool }: Target, tools: readonly { name: string }[], step: number): Call {
  const isOffered = demandedTool !== null && tools.some(({ name }) => name === demandedTool)
  return {
    provider: model.provider,
    modelId: model.modelId,
    hasTools: tools.length > 0,
    isFirst: step === 1,
    demandedTool: isOffered ? demandedTool : null,
  }
}

/** Returns the place of the question, counted from the end because changes only remove messages before it. */
const fromEnd = ({ prompt, question }: Contents): number => prompt.length - question

/**
 * Returns the prompt for this model: without the reasoning of other models (`own`), with all changes (`prompt`), and
 * shortened (`sent`). `isInWords`: the prompt has the schema of the answer, because the request cannot have it.
 */
function promptOf({ model, output, changes, ownFrom, maxSize }: Target, contents: Contents, mayUseTools: boolean) {
  const { prompt: given, question: answers } = contents
  const own = ownFrom
    ? given.flatMap((message, index) => (index < ownFrom ? withoutReasoning(message) : message))
    : given
  // Local servers constrain a reply from its first token, so that it could call no tool. The request to answer again
  // stands behind the question.
  const isAgain = given.at(-1)?.role === 'user' && given.length - 1 > answers
  const mayCall = mayUseTools && isCompatible(model.provider) && !isAgain
  const isInWords = output !== null && (mayCall || refusesOutput(changes))
  const prompt = changePrompt(isInWords ? withSchema(own, output, mayCall) : own, changes)
  const question = prompt.length - fromEnd(contents)
  const sent = maxSize === Number.POSITIVE_INFINITY ? prompt : shorten(prompt, question, maxSize)
  return { own, isInWords, prompt, question, sent }
}

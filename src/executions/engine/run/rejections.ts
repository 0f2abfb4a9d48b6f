import type { LanguageModelV4FunctionTool, LanguageModelV4Prompt } from '@ai-sdk/provider'
import { answerLimitIn } from '../models/context-length.ts'
import type { ModelFailure } from '../models/model-failures.ts'
import { CONTENT_PARTS } from '../models/reasoning-fields.ts'
import { plainSchema } from '../models/tool-schemas.ts'
import { inEnglish } from '../models/translations.ts'
import type { Change } from './change.ts'
import { isBlocked } from './history.ts'
import {
  LAST_RULES,
  type Rejection,
  type RequestFacts,
  type RequestTraits,
  RULES_OF_PARTS,
  RULES_OF_SENTENCE,
  type Rule,
} from './rejection-rules.ts'
import { digestsIn, filesIn, hasFiles, hasParts } from './request-changes.ts'

// Finds the parts of a request that a provider rejects (contract-2.md section 2.1).

/**
 * Returns the changes that may help after a rejection, the likeliest first. Considers only parts that the request has.
 */
export function changesFor(given: ModelFailure, request: RequestFacts): Change[] {
  const failure = { ...given, detail: inEnglish(given.detail) }
  const { kind, field, detail } = failure
  const ofSize = changesOfSize(failure, request)
  if (ofSize) return ofSize
  if (kind === 'content_filter') return request.prompt.some(isBlocked) ? ['after_block'] : []
  if (kind !== 'unsupported' && kind !== 'refused' && kind !== 'unknown') return []
  const traits = traitsOf(failure, request)
  const changesIn = (text: string, rules: readonly Rule[]): Change[] => {
    const rejection = { text, detail, field, request }
    const matching = rules.filter((rule) => applies(rule, rejection, traits))
    return matching.flatMap(({ change }) => (typeof change === 'string' ? change : change(rejection)))
  }
  return [
    ...new Set([
      ...changesIn(detail, RULES_OF_SENTENCE),
      // The field itself comes first, because the sentence around it may name others.
      ...[field ?? '', detail].filter(Boolean).flatMap((text) => changesIn(text, RULES_OF_PARTS)),
      ...changesIn(detail, LAST_RULES),
    ]),
  ]
}

/** Returns the changes of a request that is too large or too expensive; null for other rejections. */
function changesOfSize({ kind, detail, status, contextWindow }: ModelFailure, request: RequestFacts): Change[] | null {
  if (kind === 'context_too_long' && hasLimit(request) && contextWindow !== null) {
    const most = answerLimitIn(detail, contextWindow)
    return most === null ? [] : [`answer:${most}`]
  }
  const isOfBytes = (status === 413 || /\b(?:bytes|payload)\b/i.test(detail)) && !/token/i.test(detail)
  if (kind === 'context_too_long' && isOfBytes) return changesOfBytes(request.prompt)
  const affordable = request.isCompatible && kind === 'quota' ? Number(AFFORDABLE.exec(detail)?.[1] ?? 0) : 0
  return affordable >= MIN_AFFORDABLE ? [`afford:${affordable}`] : null
}

/** Returns the changes for a body with more bytes than a server takes: without the older half of the files, then all. */
function changesOfBytes(prompt: LanguageModelV4Prompt): Change[] {
  const digests = digestsIn(prompt)
  const older = digests.slice(0, Math.floor(digests.length / 2))
  return [older, digests].flatMap((some): Change[] => (some.length ? [`large_files:${some.join(',')}`] : []))
}

/** Returns whether the request limits its answer, as provider packages always do. */
const hasLimit = ({ settings, isCompatible }: RequestFacts): boolean =>
  settings.maxOutputTokens !== undefined || !isCompatible

/** OpenRouter's wording for an answer whose limit, by default that of the model, costs more than the credit left. */
const AFFORDABLE = /fewer max_tokens.{0,80}can only afford (\d{1,9})/i
/** Minimum limit of an answer that is worth a request (tokens). */
const MIN_AFFORDABLE = 1_024

const applies = (
  { when = [], says, sentence = [], unless }: Rule,
  { text, detail }: Rejection,
  traits: RequestTraits,
): boolean =>
  when.every((trait) => traits[trait]) &&
  (!says || says.test(text)) &&
  sentence.every((wording) => wording.test(detail)) &&
  !unless?.test(text)

/** Returns what a rejected request has. */
function traitsOf({ status }: ModelFailure, request: RequestFacts): RequestTraits {
  const { prompt, question, tools, settings, hasOutput, isCompatible } = request
  const hasTools = tools.length > 0
  return {
    isCompatible,
    isPackage: !isCompatible,
    hasStatus: status !== null,
    hasLimit: hasLimit(request),
    setsLimit: settings.maxOutputTokens !== undefined,
    hasOptions: Boolean(settings.providerOptions),
    hasOutput,
    hasTools,
    hasNoTools: !hasTools,
    hasHyphens: tools.some(({ name }) => name.includes('-')),
    hasRichSchemas: tools.some(isNotPlain),
    hasCalls: hasParts(prompt, ['tool-call']),
    hasNoCallsHere: !hasParts(prompt, ['tool-call'], question),
    hasReasoning: hasParts(prompt, ['reasoning']),
    hasContentParts: hasContentParts(prompt),
    hasFiles: hasFiles(prompt),
    hasResultFiles: prompt.some((message) => message.role === 'tool' && filesIn(message).length > 0),
  }
}

const hasContentParts = (prompt: LanguageModelV4Prompt): boolean =>
  prompt.some(
    ({ role, content }) =>
      role === 'assistant' &&
      content.some(({ providerOptions = {} }) => Object.values(providerOptions).some((own) => CONTENT_PARTS in own)),
  )

const isNotPlain = ({ inputSchema }: LanguageModelV4FunctionTool): boolean =>
  JSON.stringify(plainSchema(inputSchema)) !== JSON.stringify(inputSchema)

import { ModelError } from '../models/model-errors.ts'
import type { Models } from '../models/models.ts'
import type { TextModel } from '../models/text-model.ts'
import type { Breaker } from './breaker.ts'
import type { Warn } from './warnings.ts'

export type ChainDeps = { models: Pick<Models, 'resolve'>; breaker: Breaker; organizationId: string; warn: Warn }

/** A model that can be asked. */
export type ChosenModel = {
  /** `<provider>/<id>` */
  readonly id: string
  /** The first segment of the id. */
  readonly provider: string
  /** Key of the provider's breaker. An organization's own provider has a key of its own. */
  readonly circuit: string
  readonly model: TextModel
}

/** The models of a run: its own, then those that it may fall back to (contract-2.md section 2.2). */
export type ModelChain = {
  current(): ChosenModel
  /** Models that were asked or skipped before the current one. */
  tried(): readonly string[]
  /** Whether another model is left to ask. */
  hasNext(): boolean
  /** Switches to the next usable model. Returns false if there is none. */
  next(): Promise<boolean>
  /** Resolves the current model again. Returns whether its provider has changed, such as its key. */
  renew(): Promise<boolean>
}

type Candidate = { name: string | null; chosen: ChosenModel | null; isLeft: boolean }

/**
 * Resolves the first usable model. Skips models that are unknown or have no key, and those whose breaker is open while
 * another one remains. A resumed run continues with the model that `answered` last (its full id), if it is still in the
 * list. Throws the {@link ModelError} of the first model if none is usable.
 */
export async function openChain(
  { models, breaker, organizationId, warn }: ChainDeps,
  names: readonly (string | null)[],
  answered: string | null,
): Promise<ModelChain> {
  const candidates = [...new Set(names)].map((name): Candidate => ({ name, chosen: null, isLeft: true }))
  const left = () => candidates.filter(({ isLeft }) => isLeft)
  let refusal: unknown

  async function lookUp(name: string | null): Promise<ChosenModel> {
    const { id, model, isOwn } = await models.resolve(name, organizationId)
    const provider = id.split('/', 1)[0] ?? ''
    return { id, model, provider, circuit: isOwn ? `${organizationId} ${provider}` : provider }
  }

  async function resolve(candidate: Candidate): Promise<ChosenModel | null> {
    if (candidate.chosen || !candidate.isLeft) return candidate.chosen
    try {
      candidate.chosen = await lookUp(candidate.name)
    } catch (error) {
      if (!(error instanceof ModelError)) throw error
      refusal ??= error
      candidate.isLeft = false
      if (left().length) {
        warn(
          'model_fallback',
          `The model ${candidate.name ?? 'by default'} cannot be used: it is unknown or has no key`,
        )
      }
    }
    return candidate.chosen
  }

  async function choose(): Promise<Candidate | null> {
    let skipped: Candidate | null = null
    for (const candidate of left()) {
      const chosen = await resolve(candidate)
      if (!chosen) continue
      if (!breaker.isOpen(chosen.circuit)) {
        if (skipped) warn('model_fallback', `The model ${skipped.chosen?.id} was skipped: its provider keeps failing`)
        return candidate
      }
      skipped ??= candidate
    }
    return skipped
  }

  async function passOver(id: string): Promise<void> {
    for (const [place, candidate] of candidates.entries()) {
      if ((await resolve(candidate))?.id !== id) continue
      for (const before of candidates.slice(0, place)) before.isLeft = false
      return
    }
  }

  if (answered !== null && candidates.length > 1) await passOver(answered)
  let current = await choose()
  if (!current) throw refusal
  return {
    current: () => current!.chosen!,
    tried() {
      const place = candidates.indexOf(current!)
      return candidates
        .filter((each, index) => each !== current && (index < place || !each.isLeft))
        .map(({ chosen, name }) => chosen?.id ?? name ?? '')
    },
    hasNext: () => left().length > 1,
    async next() {
      current!.isLeft = false
      const chosen = await choose()
      current = chosen ?? current
      return chosen !== null
    },
    async renew() {
      const { name, chosen: before } = current!
      const after = await lookUp(name).catch(() => null)
      if (!after || after.id !== before?.id || after.model === before.model) return false
      current!.chosen = after
      return true
    },
  }
}

import { z } from 'zod'
import { bool, int, textList } from './fields.ts'

/** Maximum size of `providerOptions` (characters of JSON). */
const MAX_OPTIONS = 32_000

const options = {
  temperature: z.number().min(0).max(2).describe('Randomness of the answer'),
  topP: z.number().min(0).max(1).describe('Probability mass that the model samples from'),
  maxOutputTokens: int(1, 10_000_000).describe('Maximum length of a model step (tokens)'),
  stopSequences: textList(16).describe('Texts at which the model stops'),
  seed: int(-(2 ** 31), 2 ** 31 - 1).describe('Seed of the sampling, for providers that have one'),
  reasoningEffort: z.enum(['none', 'minimal', 'low', 'medium', 'high']).describe('How much the model reasons'),
  toolChoice: z.enum(['auto', 'required', 'none']).describe('Whether the model may, must or must not call tools'),
  parallelToolCalls: bool().describe('Whether a model step may call several tools'),
  providerOptions: z
    .record(z.string().max(100), z.record(z.string().max(200), z.unknown()))
    .refine((given) => JSON.stringify(given).length <= MAX_OPTIONS, {
      error: ({ path }) =>
        `Invalid value for field: ${(path ?? []).join('.')}. Expected at most ${MAX_OPTIONS} characters of JSON`,
    })
    .describe('Options of one provider, by its name. Fields of `compatible` are merged into the body of the request'),
}

const nullish = <Shape extends Record<string, z.ZodType>>(shape: Shape) =>
  Object.fromEntries(
    Object.entries(shape).map(([name, schema]) => [name, schema.nullish().describe(schema.description ?? '')]),
  ) as {
    [Name in keyof Shape]: z.ZodOptional<z.ZodNullable<Shape[Name]>>
  }

const optional = <Shape extends Record<string, z.ZodType>>(shape: Shape) =>
  Object.fromEntries(Object.entries(shape).map(([name, schema]) => [name, schema.optional()])) as {
    [Name in keyof Shape]: z.ZodOptional<Shape[Name]>
  }

/** The fields of {@link NewModelSettings}. */
export const ModelSettingsGiven = z
  .strictObject(nullish(options), {
    error: (issue) =>
      issue.code === 'unrecognized_keys'
        ? `Unknown field: ${[...(issue.path ?? []), issue.keys[0]].join('.')}. Settings of one provider go into providerOptions`
        : undefined,
  })
  .meta({ id: 'ModelSettingsInput', description: "Settings of the model. Default: the provider's own" })

/**
 * Validates the model settings of a request (contract-2.md section 2.3). An unknown setting or a value out of range is
 * a 400 that names the field. A null setting counts as absent.
 */
export const NewModelSettings = ModelSettingsGiven.transform(
  (given): ModelSettings => Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)),
).describe("Settings of the model. Default: the provider's own")

/** The settings of a model as stored and returned. */
export const ModelSettings = z
  .object(optional(options))
  .meta({ id: 'ModelSettings', description: "Settings of a model. An absent one is the provider's own" })
export type ModelSettings = z.output<typeof ModelSettings>

/** The models that a run may fall back to (contract-2.md section 2.2). */
export const fallbackModels = textList(5).describe(
  'Models to ask, in order, if the one before has no key, does not exist, or fails after its retries',
)

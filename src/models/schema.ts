import { z } from 'zod'
import { ok } from '../lib/fields.ts'

/** A language model (contract.md section 3). */
export const Model = z
  .object({
    id: z.string().describe('Name of the model, as agents use it'),
    provider: z.string().describe('Provider of the model'),
    available: z.boolean().describe('Whether its provider has a key'),
  })
  .meta({ id: 'Model', description: 'A language model' })

export const ModelsResponse = ok({
  models: z.array(Model).describe('The models'),
  defaultModel: z.string().nullable().describe('Model of runs that name none; null if it is unknown'),
})

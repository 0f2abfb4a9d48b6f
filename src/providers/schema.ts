import { z } from 'zod'
import { ok, requiredText, timestamp } from '../lib/fields.ts'
import { PROVIDER_NAME } from '../lib/model-name.ts'
import { ProviderHeaders, ProviderKey } from '../lib/provider-headers.ts'

/** The maximum number of providers of an organization. */
export const MAX_PROVIDERS = 50

const BAD_NAME =
  'Invalid provider name. Must be anthropic, openai, google, compatible or compatible:<name> (a-z, 0-9, dot, hyphen, underscore)'

const isName = (name: string) =>
  ['anthropic', 'openai', 'google', 'compatible'].includes(name) ||
  (name.startsWith('compatible:') && PROVIDER_NAME.test(name.slice('compatible:'.length)))

const Name = z.string().max(60).refine(isName, BAD_NAME).describe('The name of the provider')

const orgId = z.string().describe('Your organization')

/** A provider as everybody may see it: its key and headers never come out (contract-2.md section 2.9). */
export const Provider = z
  .object({
    name: z.string().describe('The name; models of `compatible:<name>` are named `<name>/…`'),
    baseUrl: z.string().nullable().describe("The base address that the organization set; null for the provider's own"),
    source: z
      .enum(['organization', 'server'])
      .describe('Owner of the key: the organization, or the operator of the server'),
    setAt: timestamp.nullable().describe('Time at which it was set; null if the operator set it'),
    setBy: z.string().nullable().describe('The user who set it; null if the operator set it'),
    status: z
      .enum(['ok', 'failed', 'unchecked'])
      .describe('Whether the provider listed its models with this key when it was set'),
    error: z.string().nullable().describe('Why the check failed'),
  })
  .meta({ id: 'Provider', description: 'A provider of language models' })

export const ListProviders = z.object({ orgId })

export const SetProvider = z
  .object({
    orgId,
    name: Name,
    apiKey: requiredText(8_192).pipe(ProviderKey).describe('The key. It is stored encrypted and never returned'),
    baseUrl: z
      .string()
      .max(2_000)
      .nullish()
      .describe("The base address; required for `compatible` ones. The provider's own if absent"),
    headers: ProviderHeaders.nullish().describe('Further headers, such as `{"api-key": "…"}`'),
    check: z
      .union([z.enum(['true', 'false']), z.boolean()])
      .default(true)
      .transform((yes) => yes === true || yes === 'true')
      .meta({ param: { in: 'query' } })
      .describe('Whether the provider is asked for its models'),
  })
  .meta({ examples: [{ apiKey: 'gsk_…', baseUrl: 'https://api.groq.com/openai/v1' }] })

export const DeleteProvider = z.object({ orgId, name: Name })

export const ProvidersResponse = ok({ providers: z.array(Provider).describe('The providers, by name') })
export const ProviderResponse = ok({ provider: Provider.describe('The provider') })
export const ProviderDeleted = ok({ message: z.string().describe('Confirmation for people') })

import { z } from 'zod'
import { ok, requiredText } from '../lib/fields.ts'
import { asObject } from '../lib/unknown.ts'

const MAX_BYTES = 64 * 1024

/** Maximum number of secrets of a space, or of the organization itself. */
export const MAX_SECRETS = 200

const BAD_NAME = 'Invalid secret name. Must be UPPER_SNAKE_CASE: A-Z, 0-9 and _, a letter first, at most 100 characters'

const Name = z.string().regex(/^[A-Z][A-Z0-9_]{0,99}$/, BAD_NAME)

const Value = requiredText(MAX_BYTES).refine((text) => Buffer.byteLength(text) <= MAX_BYTES, {
  error: (issue) => `Invalid value for field: ${(issue.path ?? []).join('.')}. Expected at most ${MAX_BYTES} bytes`,
  params: { maxBytes: MAX_BYTES },
})

const MAX_HOSTS = 20

/** Returns whether a text is a host as addresses have it, with its port unless that is the default one. */
const isHost = (text: string): boolean => URL.parse(`https://${text}`)?.host === text && !/[*${}]/.test(text)

const Hosts = z
  .array(
    z
      .string()
      .max(253)
      .transform((host) => host.trim().toLowerCase())
      .refine(isHost, { error: 'Invalid hosts. Expected names such as api.example.com or api.example.com:8443' }),
  )
  .max(MAX_HOSTS)
  .transform((hosts) => [...new Set(hosts)])

/** Returns the message for a value that is neither a text nor an object with one and with hosts. */
function badSecret({ path = [], input }: z.core.$ZodRawIssue): string {
  const field = path.join('.')
  const { value, hosts } = asObject(input)
  if (typeof value === 'string' && hosts !== undefined)
    return `Invalid value for field: ${field}.hosts. Expected a list of at most ${MAX_HOSTS} hosts`
  const isMissing = input === null || input === undefined || (typeof input === 'string' && !input.trim())
  return isMissing ? `Missing required field: ${field}` : `Invalid value for field: ${field}. Expected string`
}

const Secret = z.union(
  [
    Value,
    z.object({
      value: Value.describe('Value of the secret'),
      hosts: Hosts.default([]).describe('Hosts that runs may send it to, such as `api.example.com`'),
    }),
  ],
  { error: badSecret },
)

/** Secrets of an input, by name. No answer contains them (contract.md section 6). */
export const Secrets = z
  .record(z.string(), Secret)
  .check(({ value, issues }) => {
    const names = Object.keys(value)
    const place = names.findIndex((name) => !Name.safeParse(name).success)
    if (place < 0) return
    // The error does not repeat the name, because a client may have sent the value in its place.
    const detail = `Correct name ${place + 1} of ${names.length}.`
    issues.push({ code: 'custom', message: BAD_NAME, input: value, params: { detail } })
  })
  .refine((secrets) => Object.keys(secrets).length > 0, {
    error: (issue) => `Missing required field: ${(issue.path ?? []).join('.')}`,
  })
  .describe('Values by name, each a text or `{value, hosts}`. An existing secret is replaced with its hosts')

const keys = z.array(Name).min(1).max(MAX_SECRETS).describe('The names of the secrets')
const spaceId = z.string().describe('The space')
const orgId = z.string().describe('Your organization')
const name = Name.describe('The name of the secret')
const examples = [{ secrets: { GITHUB_TOKEN: { value: 'ghp_…', hosts: ['api.github.com'] } } }]

export const SpaceSecrets = z.object({ id: spaceId })
export const SetSpaceSecrets = z.object({ id: spaceId, secrets: Secrets }).meta({ examples })
export const DeleteSpaceSecrets = z.object({ id: spaceId, keys })
export const DeleteSpaceSecret = z.object({ id: spaceId, name })

export const OrganizationSecrets = z.object({ orgId })
export const SetOrganizationSecrets = z.object({ orgId, secrets: Secrets }).meta({ examples })
export const DeleteOrganizationSecrets = z.object({ orgId, keys })
export const DeleteOrganizationSecret = z.object({ orgId, name })

const names = {
  secrets: z.array(z.string()).describe('Names of the secrets'),
  hosts: z.record(z.string(), z.array(z.string())).describe('Hosts that runs may send each secret to, by its name'),
  count: z.int().describe('Number of secrets'),
}

export const SpaceSecretsResponse = ok({ spaceId: z.string().describe('Id of the space'), ...names })
export const OrganizationSecretsResponse = ok({
  organizationId: z.string().describe('Id of the organization'),
  ...names,
})
export const SecretsSet = ok({ keys: z.array(z.string()).describe('Names of the secrets that were set') })
export const SecretsDeleted = ok({
  message: z.string().describe('Confirmation for people'),
  keys: z.array(z.string()).describe('Names of the secrets that were deleted'),
})

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { describeIssue } from './input-issues.ts'
import { BUILT_IN, PROVIDER_NAME } from './model-name.ts'
import { normalizeBaseAddress, type ProviderKind } from './net/base-address.ts'
import { splitHosts, targetOf } from './postgres-url.ts'
import { ProviderHeaders, ProviderKey } from './provider-headers.ts'

// Fields of the environment's settings (settings.ts).

/** Maximum duration of a timer (s). Node fires longer ones at once. */
const MAX_TIMER = 2_147_483

/** Maximum duration that is added to a date: a hundred years (days, and seconds). */
const MAX_DAYS = 36_500
export const MAX_WAIT = MAX_DAYS * 24 * 60 * 60

/** Accepts a number of units, which the refusal of anything else names: `60s` and `64 MB` are no numbers. */
const numberOf = (units: string) =>
  z.coerce.number({ error: ({ code }) => (code === 'invalid_type' ? `must be a number of ${units}` : undefined) })

const duration = (max: number) => numberOf('seconds').max(max, `must be at most ${max} seconds`)

/** Rounds to whole milliseconds, as `AbortSignal.timeout` requires. */
const toMs = (value: number) => Math.ceil(value * 1000)

/** Accepts a duration in seconds, and returns milliseconds. */
export const seconds = (fallback: number, max = MAX_TIMER) => duration(max).positive().default(fallback).transform(toMs)

/** Like {@link seconds}, but zero by default. */
export const delay = duration(MAX_TIMER).min(0).default(0).transform(toMs)

/** Accepts a number up to the maximum of a PostgreSQL integer column. */
export const count = (min: number) => z.coerce.number().int().min(min).max(2_147_483_647)

/** Accepts a number of bytes. */
export const bytes = (min: number) => numberOf('bytes').int().min(min)

/** Accepts a number of days. */
export const days = numberOf('days').positive().max(MAX_DAYS)

/** The beginning of a path that a shell would replace. In quotes and in files of variables it would name a folder `~`. */
const FOR_SHELL = /^(~(\/|$)|\$\{?[A-Za-z_])/

/** Accepts the path of a folder. */
export const folder = z
  .string()
  .refine((path) => !FOR_SHELL.test(path), 'must be the whole path: nothing replaces ~ or a variable in it')

/** Accepts one of some words, in any case. */
export const wordOf = <const Words extends readonly string[]>(words: Words) =>
  z.string().toLowerCase().pipe(z.enum(words))

/** Accepts a word for true or false. */
export const switchOf = (fallback: 'true' | 'false') =>
  wordOf(['true', 'false', '1', '0'])
    .default(fallback)
    .transform((value) => value === 'true' || value === '1')

/** Accepts a word for true or false; false by default. */
export const flag = switchOf('false')

/** Accepts the address of a web server. Its credentials belong in other settings. */
export const web = z
  .string()
  .trim()
  .pipe(z.url({ protocol: /^https?$/ }))
  .refine((url) => !/^[^/]*\/\/[^/?#]*@/.test(url), 'must not hold a user or password')

/** Accepts the address of a model provider, and normalizes it: see {@link normalizeBaseAddress}. */
export const baseAddress = (kind: ProviderKind) => web.transform((url) => normalizeBaseAddress(kind, url))

/** Parses a JSON value in one variable: an object or a list, as the example is. */
export const json = <Schema extends z.ZodType>(schema: Schema, example: string) =>
  z
    .string()
    .transform((text, context): unknown => {
      try {
        const value = JSON.parse(text) as unknown
        if (typeof value === 'object' && value && Array.isArray(value) === example.startsWith('[')) return value
      } catch {}
      context.addIssue({ code: 'custom', message: `must be JSON, such as ${example}` })
      return z.NEVER
    })
    .pipe(schema)

/** Reads the JSON file that a variable names; an empty list without one. */
export const file = <Item>(schema: z.ZodType<readonly Item[]>, example: string) =>
  z
    .string()
    .transform((path, context): readonly Item[] => {
      const refuse = (message: string) => {
        context.addIssue({ code: 'custom', message })
        return z.NEVER
      }
      let text: string
      try {
        text = readFileSync(path, 'utf8')
      } catch (error) {
        return refuse(`cannot be read: ${(error as Error).message}`)
      }
      let content: unknown
      try {
        content = JSON.parse(text)
      } catch {
        return refuse(`must name a JSON file, such as ${example}`)
      }
      const { data, error } = schema.safeParse(content, { error: describeIssue })
      if (data) return data
      const [issue] = error.issues
      const place = issue?.path.join('.')
      return refuse(`${place && `${place}: `}${issue?.message}. The file is such as ${example}`)
    })
    .default([])

/** Accepts MCP servers by type (contract-2.md section 1.16). */
export const McpCatalogue = z
  .object({
    types: z.array(
      z.object({
        mcpType: z.string().min(1).max(100),
        name: z.string().min(1).max(200),
        url: web,
        auth: z.enum(['none', 'bearer', 'oauth']),
      }),
    ),
  })
  .transform(({ types }) => types)

/** Accepts headers for a model provider. */
export const headers = json(ProviderHeaders, '{"api-key": "…"}').optional()

/** Accepts the address of a proxy. Adds `http://` to one without a scheme, as other programs do. */
export const proxy = z
  .string()
  .trim()
  .transform((text) => (/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`))
  .pipe(
    z.url({
      protocol: /^https?$/,
      error: 'must be the address of an HTTP proxy, such as http://proxy.example.com:3128',
    }),
  )
  .optional()

const CompatibleProvider = z.strictObject(
  {
    name: z
      .string()
      .regex(PROVIDER_NAME, 'must be 1 to 40 of a-z, 0-9, dot, hyphen and underscore, a letter or digit first')
      .refine((name) => !(BUILT_IN as readonly string[]).includes(name), 'is a built-in provider'),
    baseUrl: baseAddress('compatible'),
    apiKey: ProviderKey.optional(),
    headers: ProviderHeaders.default({}),
  },
  { error: ({ code, keys }) => (code === 'unrecognized_keys' ? `has unknown fields: ${keys}` : undefined) },
)

/** Accepts OpenAI-compatible providers besides the one of OPENAI_BASE_URL (contract-2.md section 2.9). */
export const CompatibleProviders = z
  .array(CompatibleProvider)
  .max(50)
  .refine((list) => new Set(list.map(({ name }) => name)).size === list.length, 'must have different names')

/** Maximum length of a rate limit's window (seconds). */
const MAX_WINDOW = 24 * 60 * 60

/** Accepts a number of calls in a window, as `<calls>/<seconds>`. Returns the window in milliseconds. */
export const rateLimit = z
  .string()
  .trim()
  .regex(/^[1-9]\d{0,8}\/[1-9]\d{0,4}$/, 'must be <calls>/<seconds>, such as 600/60')
  .transform((text) => text.split('/').map(Number) as [number, number])
  .refine(([, seconds]) => seconds <= MAX_WINDOW, `must have a window of at most ${MAX_WINDOW} seconds`)
  .transform(([limit, seconds]) => ({ limit, window: seconds * 1000 }))
  .optional()

/** Accepts the address of a mail server. */
export const smtp = z
  .string()
  .trim()
  .pipe(
    z.url({
      protocol: /^smtps?$/,
      error:
        'must be the address of a mail server, such as smtps://user:password@mail.example.com, with # / ? in the password ' +
        'as %23 %2F %3F',
    }),
  )
  // The part before such a mark would be taken for the server, and get every mail.
  .refine((url) => !/^smtps?:\/*[^/?#]+[/?#].*@/i.test(url), 'must have # / ? in the password as %23 %2F %3F')
  .optional()

/** Returns whether a URL of a database can be parsed, with each host that it names. */
function isAddress(url: string): boolean {
  try {
    return url.startsWith('file://') ? fileURLToPath(url) !== '' : splitHosts(url).every((each) => URL.canParse(each))
  } catch {
    return false
  }
}

/** Returns whether the path of an SQLite file is not one for a shell to complete. */
const isWhole = (url: string) => !FOR_SHELL.test(url.replace(/^file:/, ''))

/** Returns whether a URL leaves the schema to us. Tables are in `public`; the drivers ignore any other. */
const namesNoSchema = (url: string) =>
  (new URL(splitHosts(url)[0]!).searchParams.get('schema') ?? 'public') === 'public'

/** Returns whether a URL wants a server that accepts writes, or any server. */
const wantsWritable = (url: string) => ['read-write', 'primary'].includes(targetOf(url) ?? 'read-write')

/** Returns whether a URL of an SQLite file is a path alone: a `?` would be part of the name, or be ignored. */
const hasNoParameters = (url: string) => !/^file:(.*\?|\/\/.*#)/.test(url)

/** Accepts the URL of a database. `beginning`: the accepted schemes; `names`: their names for people. */
export const database = (beginning: RegExp, names: string) =>
  z
    .string()
    .regex(beginning, { message: `must begin with ${names}`, abort: true })
    .refine(isAddress, {
      message:
        'is no address: a # in a password is written %23, a / %2F, a @ %40, and a socket postgresql:///name?host=/folder',
      abort: true,
    })
    .refine(
      hasNoParameters,
      'must end before any ? or #: a file has no parameters. Rename a file that has them in its name',
    )
    .refine(isWhole, 'must have the whole path: nothing replaces ~ or a variable in it')
    .refine(namesNoSchema, 'must not name a schema: give it a database of its own')
    .refine(wantsWritable, 'must have target_session_attrs=read-write, or leave it out: Muster writes')
    .optional()

/** Accepts an encryption key. */
export const Key = z
  .string()
  .refine((text) => Buffer.from(text, 'base64').length === 32, 'must be 32 bytes in base64 (openssl rand -base64 32)')

/** Accepts a list with commas. */
export const list = z
  .string()
  .default('')
  .transform((text) => text.split(',').flatMap((item) => item.trim() || []))

/** Returns whether a text has the form of a browser's `Origin`, which is compared literally. */
export function isOrigin(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, host } = new URL(text)
  return host !== '' && text === `${protocol}//${host}`
}

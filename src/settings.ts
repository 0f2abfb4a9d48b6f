import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { describeIssue } from './errors.ts'
import { normalizeBaseAddress, type ProviderKind } from './lib/base-address.ts'
import { McpConfig } from './lib/mcp-config.ts'
import { BUILT_IN, isModelId, PROVIDER_NAME, readModelName } from './lib/model-name.ts'
import { splitHosts, targetOf } from './lib/postgres-url.ts'
import { ProviderHeaders, ProviderKey } from './lib/provider-headers.ts'
import { isWellFormed } from './lib/token.ts'

/** Maximum duration of a timer (s). Node fires longer ones at once. */
const MAX_TIMER = 2_147_483
/** Maximum duration that is added to a date: a hundred years. */
const MAX_DAYS = 36_500
const MAX_WAIT = MAX_DAYS * 24 * 60 * 60

const duration = (max: number) => z.coerce.number().max(max, `must be at most ${max} seconds`)

/** Rounds to whole milliseconds, as `AbortSignal.timeout` requires. */
const toMs = (value: number) => Math.ceil(value * 1000)

const seconds = (fallback: number, max = MAX_TIMER) => duration(max).positive().default(fallback).transform(toMs)

/** Accepts a number up to the maximum of a PostgreSQL integer column. */
const count = (min: number) => z.coerce.number().int().min(min).max(2_147_483_647)

const switchOf = (fallback: 'true' | 'false') =>
  z
    .enum(['true', 'false', '1', '0'])
    .default(fallback)
    .transform((value) => value === 'true' || value === '1')
const flag = switchOf('false')

const web = z
  .string()
  .trim()
  .pipe(z.url({ protocol: /^https?$/ }))
  .refine((url) => !/^[^/]*\/\/[^/?#]*@/.test(url), 'must not hold a user or password')

/** Accepts the address of a model provider, and normalizes it: see {@link normalizeBaseAddress}. */
const baseAddress = (kind: ProviderKind) => web.transform((url) => normalizeBaseAddress(kind, url))

/** Parses a JSON value in one variable. */
const json = <Schema extends z.ZodType>(schema: Schema, example: string) =>
  z
    .string()
    .transform((text, context) => {
      try {
        return JSON.parse(text) as unknown
      } catch {
        context.addIssue({ code: 'custom', message: `must be JSON, such as ${example}` })
        return z.NEVER
      }
    })
    .pipe(schema)

/** Reads the JSON file that a variable names; an empty list without one. */
const file = <Item>(schema: z.ZodType<readonly Item[]>, example: string) =>
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

/** MCP servers by type (contract-2.md section 1.16). */
const McpCatalogue = z
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

const headers = json(ProviderHeaders, '{"api-key": "…"}').optional()

/** A proxy address; `http://` is added if it has no scheme, as in other programs. */
const proxy = z
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

/** OpenAI-compatible providers besides the one of OPENAI_BASE_URL (contract-2.md section 2.9). */
const CompatibleProviders = z
  .array(CompatibleProvider)
  .max(50)
  .refine((list) => new Set(list.map(({ name }) => name)).size === list.length, 'must have different names')

const address = web.optional()

/** Maximum length of a window of a rate limit (seconds). */
const MAX_WINDOW = 24 * 60 * 60

/** A number of calls in a window, as `<calls>/<seconds>`. The window is kept in milliseconds. */
const rateLimit = z
  .string()
  .trim()
  .regex(/^[1-9]\d{0,8}\/[1-9]\d{0,4}$/, 'must be <calls>/<seconds>, such as 600/60')
  .transform((text) => text.split('/').map(Number) as [number, number])
  .refine(([, seconds]) => seconds <= MAX_WINDOW, `must have a window of at most ${MAX_WINDOW} seconds`)
  .transform(([limit, seconds]) => ({ limit, window: seconds * 1000 }))
  .optional()

/** The address of a mail server. */
const smtp = z
  .string()
  .trim()
  .pipe(
    z.url({
      protocol: /^smtps?$/,
      error: 'must be the address of a mail server, such as smtps://user:password@mail.example.com',
    }),
  )
  .optional()

function isAddress(url: string): boolean {
  try {
    return url.startsWith('file://') ? fileURLToPath(url) !== '' : splitHosts(url).every((each) => URL.canParse(each))
  } catch {
    return false
  }
}

/** Tables are in the schema `public`; the drivers ignore any other. */
const namesNoSchema = (url: string) =>
  (new URL(splitHosts(url)[0]!).searchParams.get('schema') ?? 'public') === 'public'

/** Whether a URL wants a server that accepts writes, if it wants a certain one. */
const wantsWritable = (url: string) => ['read-write', 'primary'].includes(targetOf(url) ?? 'read-write')

const database = (beginning: RegExp, names: string) =>
  z
    .string()
    .regex(beginning, { message: `must begin with ${names}`, abort: true })
    .refine(isAddress, {
      message:
        'is no address: a # in a password is written %23, a / %2F, a @ %40, and a socket postgresql:///name?host=/folder',
      abort: true,
    })
    .refine(namesNoSchema, 'must not name a schema: give it a database of its own')
    .refine(wantsWritable, 'must have target_session_attrs=read-write, or leave it out: Muster writes')
    .optional()

/** Format of an encryption key. */
export const Key = z
  .string()
  .refine((text) => Buffer.from(text, 'base64').length === 32, 'must be 32 bytes in base64 (openssl rand -base64 32)')

const list = z
  .string()
  .default('')
  .transform((text) => text.split(',').flatMap((item) => item.trim() || []))

/** Returns whether a text has the form of a browser's `Origin`, which is compared literally. */
function isOrigin(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, host } = new URL(text)
  return host !== '' && text === `${protocol}//${host}`
}

/**
 * All settings of the environment (contract.md section 0). Durations are given in seconds and stored in milliseconds.
 * An empty or blank variable counts as absent.
 */
export const Settings = z
  .object({
    NODE_ENV: z.enum(['development', 'production', 'test']).default('development'),
    HOST: z.string().default('127.0.0.1'),
    PORT: z.coerce.number().int().min(0).max(65535).default(3000),
    PUBLIC_URL: web.refine((url) => !/[?#]/.test(url), 'must end before any ? or #').optional(),
    CORS_ORIGINS: list.refine(
      (origins) => origins.every((origin) => origin === '*' || isOrigin(origin)),
      'must be *, or origins without a path, such as https://app.example.com (no slash at the end, in lower case)',
    ),
    ALLOWED_HOSTS: list.refine(
      (hosts) => hosts.every((host) => host === '*' || (!/[/@?#]/.test(host) && URL.canParse(`http://${host}`))),
      'must be *, or host names without a scheme, such as muster.example.com',
    ),
    TRUST_PROXY: flag,
    PUBLIC_DIRECTORY: flag,
    ALLOW_NEW_ORGANIZATIONS: flag,
    SMTP_URL: smtp,
    MAIL_FROM: z
      .string()
      .trim()
      .max(320)
      .regex(/^[^\p{Cc}]+@[^\p{Cc}]+$/u, 'must be an e-mail address, such as Muster <muster@example.com>')
      .optional(),
    LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),

    ROLE: z.enum(['all', 'api', 'worker']).default('all'),
    PAUSED: flag,
    METRICS_PORT: z.coerce.number().int().min(0).max(65535).optional(),
    OTEL_EXPORTER_OTLP_ENDPOINT: address,
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: flag,

    DATA_DIR: z.string().default('./data'),
    ALLOW_NEW_INSTALLATION: flag,
    DATABASE_URL: database(/^(file:|postgres(ql)?:\/\/)/, 'file: or postgresql://'),
    DATABASE_DIRECT_URL: database(/^postgres(ql)?:\/\//, 'postgresql://'),
    DATABASE_POOL_SIZE: z.coerce.number().int().min(1).max(500).default(10),
    ENCRYPTION_KEY: Key.optional(),
    // Used and validated only by the command line.
    NEW_ENCRYPTION_KEY: z.string().optional(),
    TOKEN_PREFIX: z
      .string()
      .regex(/^[a-z][a-z0-9]{0,15}$/, 'must be 1 to 16 lower-case letters or digits, a letter first')
      .default('mst'),
    BOOTSTRAP_TOKEN: z.string().optional(),
    OIDC_ISSUER: address,
    OIDC_AUDIENCE: z.string().optional(),
    OIDC_CLIENT_IDS: list,
    OIDC_JWKS_URL: address,
    OIDC_CLIENT_ID: z.string().trim().optional(),
    OIDC_CLIENT_SECRET: z.string().trim().optional(),
    OIDC_NAME: z.string().trim().max(60).default('your identity provider'),
    OIDC_SCOPES: z
      .string()
      .trim()
      .regex(/^[\x21\x23-\x5b\x5d-\x7e ]*$/, 'must be scopes with blanks between them')
      .default('openid email profile')
      .refine((scopes) => scopes.split(' ').includes('openid'), 'must include openid'),
    OIDC_ORGANIZATION: z.string().trim().optional(),
    OIDC_ALLOWED_DOMAINS: list
      .refine(
        (domains) => domains.every((domain) => /^[^\s@*]+\.[^\s@*.]+$/.test(domain)),
        'must be domains of e-mail addresses, such as example.com',
      )
      .transform((domains) => domains.map((domain) => domain.toLowerCase())),
    OIDC_ROLE_CLAIM: z.string().trim().optional(),
    OIDC_ROLE_MAP: json(z.record(z.string(), z.enum(['admin', 'member'])), '{"muster-admins": "admin"}').optional(),
    ALLOW_PRIVATE_NETWORK: flag,
    MCP_AUTHORIZATION_SERVER: address,
    MCP_CATALOGUE: file(
      McpCatalogue,
      '{"types": [{"mcpType": "wiki", "name": "Wiki", "url": "https://…", "auth": "none"}]}',
    ),
    MCP_CONFIG: file(
      McpConfig,
      '{"mcpServers": {"files": {"command": "/usr/bin/npx", "args": ["…"], "env": {"PATH": "/usr/bin"}}}}',
    ),
    HTTP_PROXY: proxy,
    HTTPS_PROXY: proxy,
    NO_PROXY: z.string().optional(),

    DEFAULT_MODEL: z.string().trim().optional(),
    ANTHROPIC_API_KEY: ProviderKey.optional(),
    ANTHROPIC_BASE_URL: baseAddress('anthropic').optional(),
    ANTHROPIC_HEADERS: headers,
    OPENAI_API_KEY: ProviderKey.optional(),
    OPENAI_BASE_URL: baseAddress('compatible').optional(),
    OPENAI_RESPONSES_BASE_URL: baseAddress('openai').optional(),
    OPENAI_HEADERS: headers,
    GOOGLE_GENERATIVE_AI_API_KEY: ProviderKey.optional(),
    GOOGLE_BASE_URL: baseAddress('google').optional(),
    THINK_TAGS: switchOf('true'),
    COMPATIBLE_PROVIDERS: json(
      CompatibleProviders,
      '[{"name": "groq", "baseUrl": "https://api.groq.com/openai/v1", "apiKey": "…"}]',
    ).default([]),

    MAX_HISTORY_TOKENS: z.coerce.number().int().min(0).max(100_000_000).default(100_000),
    EXECUTION_TIMEOUT: seconds(30 * 60),
    MODEL_IDLE_TIMEOUT: seconds(120),
    MODEL_RETRIES: z.coerce.number().int().min(0).max(10).default(2),
    TOOL_TIMEOUT: seconds(60),
    APPROVAL_TIMEOUT: seconds(7 * 24 * 60 * 60, MAX_WAIT),
    CLIENT_TOOL_TIMEOUT: seconds(60 * 60),
    SEARCH_PROVIDER: z.enum(['brave', 'tavily', 'searxng']).optional(),
    SEARCH_API_KEY: z.string().trim().optional(),
    SEARCH_URL: web.optional(),
    QUEUE_TIMEOUT: seconds(60 * 60, MAX_WAIT),
    LEASE_DURATION: seconds(15),
    SHUTDOWN_DELAY: duration(MAX_TIMER).min(0).default(0).transform(toMs),
    DRAIN_TIMEOUT: seconds(20),
    MAX_RUNNING: count(1).default(5000),
    MAX_RUNNING_PER_ORGANIZATION: count(1).optional(),
    MAX_PENDING_RUNS: count(0).optional(),
    MAX_RUN_BYTES: z.coerce
      .number()
      .int()
      .min(1024 * 1024)
      .default(512 * 1024 ** 2),
    MAX_UNSENT_BYTES: z.coerce
      .number()
      .int()
      .min(1024 * 1024)
      .default(64 * 1024 ** 2),
    MEDIA_QUOTA: z.coerce
      .number()
      .int()
      .min(0)
      .default(10 * 1024 ** 3),
    MEDIA_DIR: z.string().optional(),
    S3_BUCKET: z.string().optional(),
    S3_REGION: z.string().default('us-east-1'),
    S3_ENDPOINT: address,
    S3_ACCESS_KEY_ID: z.string().optional(),
    S3_SECRET_ACCESS_KEY: z.string().optional(),
    EVENT_RETENTION_DAYS: z.coerce.number().positive().max(MAX_DAYS).default(90),
    RATE_LIMIT: rateLimit,
    EXECUTE_RATE_LIMIT: rateLimit,
    AUDIT_RETENTION_DAYS: z.coerce.number().positive().max(MAX_DAYS).default(365),
  })
  .refine((env) => env.BOOTSTRAP_TOKEN === undefined || isWellFormed(env.BOOTSTRAP_TOKEN, env.TOKEN_PREFIX), {
    path: ['BOOTSTRAP_TOKEN'],
    message:
      'must be a token: <TOKEN_PREFIX>_, 30 base62 characters and their checksum (docs/guides/operating.md has how to make one)',
  })
  .refine((env) => !env.DATABASE_URL?.startsWith('postgres') || env.ENCRYPTION_KEY, {
    path: ['ENCRYPTION_KEY'],
    message: 'is required with PostgreSQL: every server needs the same one (openssl rand -base64 32)',
  })
  .refine((env) => env.ROLE === 'all' || env.DATABASE_URL?.startsWith('postgres'), {
    path: ['ROLE'],
    message: 'must be all with SQLite, which only one server can use',
  })
  .refine((env) => !env.DATABASE_DIRECT_URL || env.DATABASE_URL?.startsWith('postgres'), {
    path: ['DATABASE_DIRECT_URL'],
    message: 'requires a DATABASE_URL of PostgreSQL',
  })
  .refine(
    ({ DEFAULT_MODEL, OPENAI_BASE_URL, COMPATIBLE_PROVIDERS }) => {
      if (DEFAULT_MODEL === undefined) return true
      const names: string[] = [...BUILT_IN, ...COMPATIBLE_PROVIDERS.map(({ name }) => name)]
      const provider = DEFAULT_MODEL.slice(0, Math.max(0, DEFAULT_MODEL.indexOf('/')))
      const isListed = (OPENAI_BASE_URL || COMPATIBLE_PROVIDERS.length) && !names.includes(provider)
      return isListed
        ? isModelId('compatible', DEFAULT_MODEL)
        : readModelName(DEFAULT_MODEL, (name) => names.includes(name))
    },
    { path: ['DEFAULT_MODEL'], message: 'must name a model and its provider, such as anthropic/claude-sonnet-5-5' },
  )
  .refine((env) => !(env.S3_BUCKET && env.MEDIA_DIR), {
    path: ['MEDIA_DIR'],
    message: 'must not be set with S3_BUCKET: media are in one place',
  })
  .refine(({ SEARCH_PROVIDER, SEARCH_URL }) => SEARCH_PROVIDER !== 'searxng' || SEARCH_URL, {
    path: ['SEARCH_URL'],
    message: 'is required with SEARCH_PROVIDER=searxng: the address of the server, without /search',
  })
  .refine(({ SEARCH_PROVIDER: provider, SEARCH_API_KEY }) => !provider || provider === 'searxng' || SEARCH_API_KEY, {
    path: ['SEARCH_API_KEY'],
    message: 'is required with SEARCH_PROVIDER=brave and tavily',
  })
  .refine((env) => !env.S3_ACCESS_KEY_ID === !env.S3_SECRET_ACCESS_KEY, {
    path: ['S3_ACCESS_KEY_ID'],
    message: 'and S3_SECRET_ACCESS_KEY belong together',
  })
  .refine((env) => !(env.OIDC_AUDIENCE || env.OIDC_JWKS_URL) || env.OIDC_ISSUER, {
    path: ['OIDC_ISSUER'],
    message: 'is required with OIDC_AUDIENCE and OIDC_JWKS_URL',
  })
  .refine((env) => !env.MCP_AUTHORIZATION_SERVER || env.PUBLIC_URL, {
    path: ['PUBLIC_URL'],
    message: 'is required with MCP_AUTHORIZATION_SERVER: tokens are issued for <PUBLIC_URL>/mcp',
  })
  .refine((env) => !env.OIDC_ISSUER || env.OIDC_AUDIENCE || env.OIDC_CLIENT_ID, {
    path: ['OIDC_AUDIENCE'],
    message: 'or OIDC_CLIENT_ID is required with OIDC_ISSUER: tokens that were issued for others are refused',
  })
  .refine((env) => !env.OIDC_CLIENT_ID || env.OIDC_ISSUER, {
    path: ['OIDC_ISSUER'],
    message: 'is required with OIDC_CLIENT_ID',
  })
  .refine(
    (env) =>
      env.OIDC_CLIENT_ID ||
      !(env.OIDC_CLIENT_SECRET || env.OIDC_ORGANIZATION || env.OIDC_ALLOWED_DOMAINS.length || env.OIDC_ROLE_CLAIM),
    {
      path: ['OIDC_CLIENT_ID'],
      message: 'is required with OIDC_CLIENT_SECRET, OIDC_ORGANIZATION, OIDC_ALLOWED_DOMAINS and OIDC_ROLE_CLAIM',
    },
  )
  .refine((env) => !env.OIDC_ROLE_CLAIM === !env.OIDC_ROLE_MAP, {
    path: ['OIDC_ROLE_CLAIM'],
    message: 'and OIDC_ROLE_MAP belong together',
  })

/** The names of all settings. */
export const SETTINGS: readonly string[] = Object.keys(Settings.shape)

export type Settings = z.output<typeof Settings>

/** Returns the address that links of mails and of the command line begin with, without a slash at its end. */
export const publicAddress = ({ PUBLIC_URL, PORT }: Pick<Settings, 'PUBLIC_URL' | 'PORT'>): string =>
  (PUBLIC_URL ?? `http://localhost:${PORT}`).replace(/\/$/, '')

/** Returns the path that a proxy serves this service below, without a slash at its end; mostly empty. */
export const basePath = ({ PUBLIC_URL }: Pick<Settings, 'PUBLIC_URL'>): string =>
  PUBLIC_URL ? new URL(PUBLIC_URL).pathname.replace(/\/$/, '') : ''

/** Thrown by {@link readSettings}. The message lists every problem, one per line. */
export class SettingsError extends Error {
  override name = 'SettingsError'
}

/** Variables that programs also read in lower case. */
const EITHER_CASE = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY']

/**
 * Reads and validates the environment. Throws a {@link SettingsError} that names every bad variable, never its value.
 */
export function readSettings(env: Record<string, string | undefined>): Settings {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value?.trim()))
  for (const name of EITHER_CASE) {
    const value = given[name.toLowerCase()] ?? given[name]
    if (value !== undefined) given[name] = value
  }
  const result = Settings.safeParse(given, { error: describeIssue })
  if (result.success) return result.data
  const problems = result.error.issues.map((issue) => `  ${issue.path.join('.')}: ${issue.message}`)
  throw new SettingsError(`Invalid configuration:\n${problems.join('\n')}`)
}

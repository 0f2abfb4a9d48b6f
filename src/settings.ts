import { z } from 'zod'
import { describeIssue } from './lib/input-issues.ts'
import { McpConfig } from './lib/mcp-config.ts'
import { describeMisspelt } from './lib/misspelt.ts'
import { BUILT_IN, isModelId, readModelName } from './lib/model-name.ts'
import { ProviderKey } from './lib/provider-headers.ts'
import {
  baseAddress,
  bytes,
  CompatibleProviders,
  count,
  database,
  days,
  delay,
  file,
  flag,
  folder,
  headers,
  isOrigin,
  json,
  Key,
  list,
  MAX_WAIT,
  McpCatalogue,
  proxy,
  rateLimit,
  seconds,
  smtp,
  switchOf,
  web,
  wordOf,
} from './lib/setting-fields.ts'
import { isWellFormed } from './lib/token.ts'

/** Marks the problems of combinations, which do not make single settings invalid. */
const COMBINED = { combined: true }

/**
 * Returns the parameters of a check of several settings, whose problem is reported for the first one. By
 * default Zod makes such checks for an object without any problem only. This one is made unless one of its own settings
 * is invalid, so that a start names all problems at once.
 */
const combined = (names: readonly string[], message: string) => ({
  path: names.slice(0, 1),
  message,
  params: COMBINED,
  when: ({ issues }: z.core.ParsePayload) =>
    !issues.some(({ path, params }) => params !== COMBINED && names.includes(String(path?.[0]))),
})

/**
 * All settings of the environment (contract.md section 0). Durations are given in seconds and stored in milliseconds.
 * An empty or blank variable counts as absent.
 */
export const Settings = z
  .object({
    NODE_ENV: z.enum(['development', 'production', 'test']).default('development'),
    HOST: z
      .string()
      .trim()
      .transform((host) => host.replace(/^\[(.*)\]$/, '$1'))
      .default('127.0.0.1'),
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
    LOG_LEVEL: wordOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),

    ROLE: z.enum(['all', 'api', 'worker']).default('all'),
    PAUSED: flag,
    METRICS_PORT: z.coerce.number().int().min(0).max(65535).optional(),
    OTEL_EXPORTER_OTLP_ENDPOINT: web.optional(),
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT: flag,

    DATA_DIR: folder.default('./data'),
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
    OIDC_ISSUER: web.optional(),
    OIDC_AUDIENCE: z.string().optional(),
    OIDC_CLIENT_IDS: list,
    OIDC_JWKS_URL: web.optional(),
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
    MCP_AUTHORIZATION_SERVER: web.optional(),
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
    SHUTDOWN_DELAY: delay,
    DRAIN_TIMEOUT: seconds(20),
    MAX_RUNNING: count(1).default(5000),
    MAX_RUNNING_PER_ORGANIZATION: count(1).optional(),
    MAX_PENDING_RUNS: count(0).optional(),
    MAX_RUN_BYTES: bytes(1024 * 1024).optional(),
    MAX_UNSENT_BYTES: bytes(1024 * 1024).default(64 * 1024 ** 2),
    MEDIA_QUOTA: bytes(0).default(10 * 1024 ** 3),
    MEDIA_DIR: folder.optional(),
    S3_BUCKET: z.string().optional(),
    S3_REGION: z.string().default('us-east-1'),
    S3_ENDPOINT: web.optional(),
    S3_ACCESS_KEY_ID: z.string().optional(),
    S3_SECRET_ACCESS_KEY: z.string().optional(),
    EVENT_RETENTION_DAYS: days.default(90),
    RATE_LIMIT: rateLimit,
    EXECUTE_RATE_LIMIT: rateLimit,
    AUDIT_RETENTION_DAYS: days.default(365),
  })
  .refine(
    (env) => env.BOOTSTRAP_TOKEN === undefined || isWellFormed(env.BOOTSTRAP_TOKEN, env.TOKEN_PREFIX),
    combined(
      ['BOOTSTRAP_TOKEN', 'TOKEN_PREFIX'],
      'must be a token: <TOKEN_PREFIX>_, 30 base62 characters and their checksum (docs/guides/operating.md has how to make one)',
    ),
  )
  .refine(
    (env) => !env.DATABASE_URL?.startsWith('postgres') || env.ENCRYPTION_KEY,
    combined(
      ['ENCRYPTION_KEY', 'DATABASE_URL'],
      'is required with PostgreSQL: every server needs the same one (openssl rand -base64 32)',
    ),
  )
  .refine(
    (env) => env.ROLE === 'all' || env.DATABASE_URL?.startsWith('postgres'),
    combined(['ROLE', 'DATABASE_URL'], 'must be all with SQLite, which only one server can use'),
  )
  .refine(
    (env) => !env.DATABASE_DIRECT_URL || env.DATABASE_URL?.startsWith('postgres'),
    combined(['DATABASE_DIRECT_URL', 'DATABASE_URL'], 'requires a DATABASE_URL of PostgreSQL'),
  )
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
    combined(
      ['DEFAULT_MODEL', 'OPENAI_BASE_URL', 'COMPATIBLE_PROVIDERS'],
      'must name a model and its provider, such as anthropic/claude-sonnet-5-5',
    ),
  )
  .refine(
    (env) => !(env.S3_BUCKET && env.MEDIA_DIR),
    combined(['MEDIA_DIR', 'S3_BUCKET'], 'must not be set with S3_BUCKET: media are in one place'),
  )
  .refine(
    ({ SEARCH_PROVIDER, SEARCH_URL }) => SEARCH_PROVIDER !== 'searxng' || SEARCH_URL,
    combined(
      ['SEARCH_URL', 'SEARCH_PROVIDER'],
      'is required with SEARCH_PROVIDER=searxng: the address of the server, without /search',
    ),
  )
  .refine(
    ({ SEARCH_PROVIDER: provider, SEARCH_API_KEY }) => !provider || provider === 'searxng' || SEARCH_API_KEY,
    combined(['SEARCH_API_KEY', 'SEARCH_PROVIDER'], 'is required with SEARCH_PROVIDER=brave and tavily'),
  )
  .refine(
    (env) => !env.S3_ACCESS_KEY_ID === !env.S3_SECRET_ACCESS_KEY,
    combined(['S3_ACCESS_KEY_ID', 'S3_SECRET_ACCESS_KEY'], 'and S3_SECRET_ACCESS_KEY belong together'),
  )
  .refine(
    (env) => !(env.OIDC_AUDIENCE || env.OIDC_JWKS_URL) || env.OIDC_ISSUER,
    combined(['OIDC_ISSUER', 'OIDC_AUDIENCE', 'OIDC_JWKS_URL'], 'is required with OIDC_AUDIENCE and OIDC_JWKS_URL'),
  )
  .refine(
    (env) => !env.MCP_AUTHORIZATION_SERVER || env.PUBLIC_URL,
    combined(
      ['PUBLIC_URL', 'MCP_AUTHORIZATION_SERVER'],
      'is required with MCP_AUTHORIZATION_SERVER: tokens are issued for <PUBLIC_URL>/mcp',
    ),
  )
  .refine(
    (env) => !env.OIDC_ISSUER || env.OIDC_AUDIENCE || env.OIDC_CLIENT_ID,
    combined(
      ['OIDC_AUDIENCE', 'OIDC_ISSUER', 'OIDC_CLIENT_ID'],
      'or OIDC_CLIENT_ID is required with OIDC_ISSUER: tokens that were issued for others are refused',
    ),
  )
  .refine(
    (env) => !env.OIDC_CLIENT_ID || env.OIDC_ISSUER,
    combined(['OIDC_ISSUER', 'OIDC_CLIENT_ID'], 'is required with OIDC_CLIENT_ID'),
  )
  .refine(
    (env) =>
      env.OIDC_CLIENT_ID ||
      !(env.OIDC_CLIENT_SECRET || env.OIDC_ORGANIZATION || env.OIDC_ALLOWED_DOMAINS.length || env.OIDC_ROLE_CLAIM),
    combined(
      ['OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET', 'OIDC_ORGANIZATION', 'OIDC_ALLOWED_DOMAINS', 'OIDC_ROLE_CLAIM'],
      'is required with OIDC_CLIENT_SECRET, OIDC_ORGANIZATION, OIDC_ALLOWED_DOMAINS and OIDC_ROLE_CLAIM',
    ),
  )
  .refine(
    (env) => !env.OIDC_ROLE_CLAIM === !env.OIDC_ROLE_MAP,
    combined(['OIDC_ROLE_CLAIM', 'OIDC_ROLE_MAP'], 'and OIDC_ROLE_MAP belong together'),
  )

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

/** Describes a bad variable. Its name is at the beginning only. */
function describe({ path, message }: z.core.$ZodIssue): string {
  const name = path.join('.')
  const problem = message.replace(`Invalid value for field: ${name}. `, '')
  return `${name}: ${problem === 'Expected url' ? 'must be an address that begins with https:// or http://' : problem}`
}

/** Removes blanks and quotes around a value. `docker run --env-file` passes on those of a file, and its CR at line ends. */
const bare = (text: string): string => text.trim().replace(/^(["'])(.*)\1$/s, '$2')

/**
 * Reads and validates the environment. Throws a {@link SettingsError} that names every bad variable, never its value.
 */
export function readSettings(env: Record<string, string | undefined>): Settings {
  const given = Object.fromEntries(
    Object.entries(env).flatMap(([name, text = '']) => {
      const value = bare(text)
      return value ? [[name, value]] : []
    }),
  )
  for (const name of EITHER_CASE) {
    const value = given[name.toLowerCase()] ?? given[name]
    if (value !== undefined) given[name] = value
  }
  // Zod would compile a function for it, which takes longer than the only use.
  const result = Settings.safeParse(given, { error: describeIssue, jitless: true })
  if (result.success) return result.data
  const problems = [
    ...result.error.issues.map(describe),
    // A misspelt name may be the reason why another setting is missing.
    ...describeMisspelt(given, SETTINGS),
  ]
  throw new SettingsError(`Invalid configuration:\n${problems.map((problem) => `  ${problem}`).join('\n')}`)
}

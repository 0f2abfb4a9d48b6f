import { isAbsolute } from 'node:path'
import { z } from 'zod'

/** Maximum number of declared servers. */
const MAX_SERVERS = 100
/** Maximum length of a value (characters). */
const MAX_VALUE = 32_768

/** Field names that other programs read, with the name of ours. */
const OTHERS: Readonly<Record<string, string>> = {
  serverUrl: 'url',
  httpUrl: 'url',
  environment: 'env',
  autoApprove: 'permissions',
  alwaysAllow: 'permissions',
  enabled: 'disabled',
  orgs: 'organizations',
  organization: 'organizations',
}

/** Explains unknown fields, which would otherwise be ignored. */
const strict = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.strictObject(shape, {
    error: ({ code, keys }) => {
      if (code !== 'unrecognized_keys') return undefined
      const [name = ''] = keys as string[]
      const known = Object.keys(shape).join(', ')
      return `has the unknown field ${name}: ${OTHERS[name] ? `use ${OTHERS[name]}` : `use one of ${known}, or remove it`}`
    },
  })

const text = (what: string) => z.string(`must be ${what}`).max(MAX_VALUE, `must be at most ${MAX_VALUE} characters`)

/** Process arguments and environments end at the first NUL. */
const value = (what: string) => text(what).regex(/^[^\0]*$/, 'must not contain the character NUL')

/** Checks an object whose names have a form. */
const record = <Value extends z.ZodType>(name: RegExp, names: string, values: Value, what = 'names and texts') =>
  z.record(z.string().regex(name), values, {
    error: ({ code }) => (code === 'invalid_key' ? `must have names of ${names}` : `must be an object of ${what}`),
  })

/** References that other programs replace. */
const REFERENCE = /^\$\{[^}]*\}$/

const Env = record(
  /^[^=\0]+$/,
  'environment variables',
  value('a text: write numbers and true in quotes').refine(
    (given) => !REFERENCE.test(given),
    'must be the value itself: references to variables are not replaced',
  ),
)

const absolute = (what: string) =>
  value(what)
    .min(1, `must be ${what}`)
    .refine((path) => isAbsolute(path), `must be ${what}`)

const Headers = record(
  /^[\w!#$%&'*+.^`|~-]{1,100}$/,
  'HTTP headers',
  text('a text').regex(/^[\t\x20-\x7e]*$/, 'must be one line of ASCII characters'),
)

const Url = text('an address')
  .refine((given) => /^https?:\/\//i.test(given) && URL.canParse(given), 'must be an http or https address')
  .refine((given) => {
    const { username, password, host } = new URL(given)
    return !username && !password && !/[${}]/.test(host)
  }, 'must have no user or password: use headers')

const Entry = strict({
  type: z.enum(['stdio', 'http', 'streamable-http', 'sse'], 'must be stdio, http, streamable-http or sse').optional(),
  command: value('the path of a program').min(1, 'must be the path of a program').optional(),
  args: z.array(value('a text'), 'must be a list of texts').optional(),
  env: Env.optional(),
  cwd: absolute('the absolute path of a folder').optional(),
  url: Url.optional(),
  headers: Headers.optional(),
  organizations: z
    .array(z.string('must be slugs of organizations').min(1), 'must be a list of slugs')
    .min(1, 'must name an organization: without the field, it is the first one')
    .optional(),
  description: text('a text').max(2000, 'must be at most 2000 characters').optional(),
  disabled: z.boolean('must be true or false').optional(),
  permissions: z
    .array(
      strict({
        tool: z.string('must be the name of a tool, or *').min(1).max(200),
        mode: z.enum(['allow', 'ask', 'deny'], 'must be allow, ask or deny'),
      }),
      'must be a list such as [{"tool": "*", "mode": "ask"}]',
    )
    .max(500, 'must be at most 500')
    .refine((list) => new Set(list.map(({ tool }) => tool)).size === list.length, 'must name each tool once')
    .optional(),
}).transform((entry, context) => {
  const refuse = (field: string, message: string) => {
    context.addIssue({ code: 'custom', path: field ? [field] : [], message })
    return z.NEVER
  }
  const { type, command, args = [], env = {}, cwd, url, headers = {}, description = null, permissions = [] } = entry
  const { organizations = null, disabled = false } = entry
  const common = { organizations, description, disabled, permissions }
  if (command !== undefined) {
    if (url !== undefined) return refuse('url', 'must not stand beside command: a server is a program or an address')
    if (entry.headers) return refuse('headers', 'is for servers with a url: give a program its credentials in env')
    if (type && type !== 'stdio') return refuse('type', 'must be stdio, or absent, beside command')
    if (/[/\\]/.test(command) && !isAbsolute(command))
      return refuse('command', 'must be an absolute path, or the name of a program on the PATH of its env')
    return { ...common, kind: 'program' as const, command, args, env, cwd: cwd ?? null }
  }
  if (url === undefined) return refuse('', 'must have a command or a url')
  const wrong = (['args', 'env', 'cwd'] as const).find((field) => entry[field] !== undefined)
  if (wrong) return refuse(wrong, 'is for servers with a command')
  if (type === 'stdio') return refuse('type', 'must be streamable-http or sse, or absent, beside url')
  const transport = type === 'sse' ? ('sse' as const) : ('streamable-http' as const)
  return { ...common, kind: 'address' as const, url, transport, headers }
})

/**
 * The content of the file that MCP_CONFIG names (contract-2.md section 2.12): `mcpServers` as in desktop clients, with
 * `organizations` in each entry. Returns the entries with their names.
 */
export const McpConfig = strict({
  mcpServers: record(/^[^\p{C}]{1,100}$/u, '1 to 100 printable characters', Entry, 'servers by name').refine(
    (servers) => Object.keys(servers).length <= MAX_SERVERS,
    `must be at most ${MAX_SERVERS} servers`,
  ),
}).transform(({ mcpServers }) => Object.entries(mcpServers).map(([name, entry]) => ({ name, ...entry })))

/** An MCP server that the operator declares. */
export type DeclaredServer = z.output<typeof McpConfig>[number]

/** A declared server that this service starts as a program. */
export type DeclaredProgram = Extract<DeclaredServer, { kind: 'program' }>

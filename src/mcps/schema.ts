import { z } from 'zod'
import { badRequest } from '../errors.ts'
import { bool, ok, requiredEnum, requiredText, text, timestamp } from '../lib/fields.ts'
import { nextCursor, pageInput, truncated } from '../lib/page.ts'
import { searchInput } from '../lib/search.ts'

const MAX_HEADERS = 50

/** Maximum number of credentials of one server. */
export const MAX_CREDENTIALS = 50

const MAX_VALUE = 8192
const MAX_PERMISSIONS = 500

const Transport = z
  .enum(['streamable-http', 'sse'])
  .meta({ id: 'McpTransport', description: 'Transport of the protocol' })

/** Transport of a stored server. Programs are servers that the operator declares. */
const AnyTransport = z
  .enum(['streamable-http', 'sse', 'stdio'])
  .meta({ id: 'McpAnyTransport', description: 'Transport of the protocol; `stdio`: a program of the operator' })

/** Origin of a server (contract-2.md section 2.12). */
export const Source = z.enum(['organization', 'operator']).meta({
  id: 'McpSource',
  description: '`organization`: added by a member; `operator`: declared in MCP_CONFIG, and read-only',
})

export const PermissionMode = requiredEnum(['ask', 'allow', 'deny']).meta({
  id: 'McpPermissionMode',
  description: '`ask`: a person decides about each call; `deny`: no agent sees the tool',
})

/** Permission to call a tool, or with `*` all tools without an entry of their own (contract.md section 7). */
export const Permission = z
  .object({
    tool: requiredText(200).describe('The name of a tool, or `*` for tools without an entry'),
    mode: PermissionMode.describe('`ask`: a person decides about each call; `deny`: no agent sees the tool'),
  })
  .meta({ id: 'ToolPermission', description: 'Whether a call of a tool needs a decision' })

export const Permissions = z
  .array(Permission)
  .max(MAX_PERMISSIONS)
  .refine((list) => new Set(list.map(({ tool }) => tool)).size === list.length, {
    error: 'Invalid permissions. A tool is named twice',
  })

/** Headers that the protocol itself sends, or that would change message framing or routing. */
const RESERVED =
  /^(host|connection|content-.*|transfer-encoding|accept-encoding|upgrade|te|trailer|keep-alive|expect|proxy-.*|last-event-id|mcp-(session-id|protocol-version|method|name|param-.*))$/i

/** Returns whether a header may be sent to MCP servers. */
export const isHeaderName = (name: string) => /^[\w!#$%&'*+.^`|~-]{1,100}$/.test(name) && !RESERVED.test(name)

const NOT_PRINTABLE = ({ path = [] }: { path?: PropertyKey[] | undefined }) =>
  `Invalid value for field: ${path.join('.')}. Expected printable ASCII characters`

// Values that are pasted often end with a line break.
const Value = z
  .string()
  .trim()
  .max(MAX_VALUE)
  .regex(/^[\x20-\x7e]*$/, {
    error: NOT_PRINTABLE,
  })

const atMost = (max: number) => (record: Readonly<Record<string, unknown>>) => Object.keys(record).length <= max

const BAD_HEADER = 'Invalid headers. A name must be that of an HTTP header, and none that the protocol itself sets'

const Headers = z
  .record(z.string().refine(isHeaderName), Value, {
    error: ({ code }) => (code === 'invalid_key' ? BAD_HEADER : undefined),
  })
  .refine(atMost(MAX_HEADERS), { error: `Invalid headers. At most ${MAX_HEADERS}` })
  .describe(`Headers that are sent with each request; \${NAME} stands for a credential`)

const BAD_CREDENTIAL =
  'Invalid credentials. A name must be letters, digits, _ and -, a letter first, and no header that the protocol sets'

const Credential = z
  .object({
    value: Value.min(1).describe('Value of the credential'),
    isSecret: bool()
      .nullish()
      .describe('Whether the value is a secret. Default: true. The value is never returned in either case'),
  })
  .meta({ id: 'McpCredential', description: 'A credential of an MCP server' })

const Credentials = z
  .record(
    z.string().refine((name) => /^[A-Za-z][\w-]{0,99}$/.test(name) && isHeaderName(name)),
    Credential.nullable(),
    { error: ({ code }) => (code === 'invalid_key' ? BAD_CREDENTIAL : undefined) },
  )
  .refine(atMost(MAX_CREDENTIALS), { error: `Invalid credentials. At most ${MAX_CREDENTIALS}` })
  .describe('Credentials by name, each sent as a header of that name unless `headers` mention it; null removes one')

const BAD_URL = 'Invalid url. Must be an http or https address, without user and password'

const Url = requiredText(2000)
  .trim()
  .refine(
    (text) => {
      const url = URL.parse(text)
      if (!url || /[\x00-\x20\x7f\\]/.test(text)) return false
      // A secret stands in the path or the query, never in the host.
      return /^https?:$/.test(url.protocol) && !url.username && !url.password && !/[${}]/.test(url.host)
    },
    { error: ({ input }) => (typeof input === 'string' && input.trim() ? BAD_URL : undefined) },
  )

/**
 * Field names that start a program, in any spelling. Servers are reached over the network only (contract.md section 7).
 */
const PROCESS = new Set(['command', 'cmd', 'args', 'argv', 'arguments', 'env', 'environment'])

/** Throws 400 for an input with such a field at any depth. The depth is already limited, see lib/fields.ts. */
export function checkNoProcess(value: unknown): void {
  if (typeof value !== 'object' || value === null) return
  for (const [name, item] of Object.entries(value)) {
    const plain = name
      .normalize('NFKC')
      .toLowerCase()
      .replace(/[^a-z0-9]/g, '')
    if (PROCESS.has(plain))
      throw badRequest('Invalid field: command, args and env are not supported', {
        detail: 'A server is reached by its `url`. The API starts no programs.',
      })
    checkNoProcess(item)
  }
}

const Auth = z.enum(['none', 'headers', 'oauth', 'client_credentials']).meta({
  id: 'McpAuthKind',
  description:
    '`none`: requests carry nothing; `headers`: headers and credentials; `oauth`: the token of the user who runs the agent; `client_credentials`: a token of the server itself',
})

const printable = (max: number) =>
  requiredText(max).refine((text) => /^[\x20-\x7e]+$/.test(text), {
    error: NOT_PRINTABLE,
  })

const oauth = {
  auth: Auth.nullish().describe(
    'How requests are authenticated. Default: `headers`, or `oauth` for a well-known type that requires it',
  ),
  clientId: printable(2000)
    .nullish()
    .describe('Client id at the authorization server, if that does not register clients itself'),
  clientSecret: printable(2000)
    .nullish()
    .describe('Secret of that client. It is stored encrypted, never returned, and removed if `url` changes'),
  scope: printable(2000)
    .nullish()
    .describe('Scope to ask for, separated by spaces. Default: the one that the MCP server names'),
}

const TRANSPORT = 'Transport of the protocol. Default: `streamable-http`'

const fields = {
  mcpType: requiredText(100).nullish().describe('Type of the server. Default: `custom`'),
  name: requiredText(200).describe('Name of the MCP server'),
  description: text(2000).nullish().describe('Purpose of the MCP server'),
  isActive: bool().nullish().describe('Whether runs use the MCP server. Default: true'),
  url: Url.describe('Where it is, http or https'),
  transport: Transport.optional().describe(TRANSPORT),
  headers: Headers.nullish().describe(`Headers that are sent with each request; \${NAME} stands for a credential`),
  credentials: Credentials.nullish().describe(
    'Credentials by name, each sent as a header of that name unless `headers` mention it; null removes one',
  ),
  permissions: Permissions.nullish().describe('Whether a call of its tools needs a decision. Default: no call does'),
  ...oauth,
}

/** POST /mcps (contract.md section 7). */
export const CreateMcp = z
  .object({
    ...fields,
    url: fields.url
      .nullish()
      .describe('Address of the server (http or https). Default: that of its `mcpType` in the catalogue'),
    transport: Transport.nullish().describe(TRANSPORT),
  })
  .meta({
    examples: [
      {
        mcpType: 'github',
        name: 'GitHub',
        url: 'https://mcp.example.com/mcp',
        headers: { Authorization: `Bearer \${GITHUB_TOKEN}` },
        credentials: { GITHUB_TOKEN: { value: 'ghp_your_token', isSecret: true } },
        permissions: [{ tool: 'delete_repository', mode: 'ask' }],
      },
    ],
  })

const mcpId = z.string().describe('The MCP server')

/** PATCH /mcps/{id} (contract.md section 7). */
export const UpdateMcp = z
  .object({
    id: mcpId,
    ...fields,
    name: fields.name.optional().describe('Name of the MCP server'),
    url: fields.url.optional().describe('Address of the MCP server'),
  })
  .meta({ examples: [{ description: 'Issues and pull requests.' }] })

/** GET and DELETE /mcps/{id}, GET /mcps/{id}/tools (contract.md section 7), and the caller's connection. */
export const McpId = z.object({ id: mcpId })

/** A well-known kind of server (contract-2.md section 1.16). */
export const McpType = z
  .object({
    mcpType: z.string().describe('Value of `mcpType` of a server'),
    name: z.string().describe('Name for people'),
    url: z.string().describe('Address of the server'),
    auth: z
      .enum(['none', 'bearer', 'oauth'])
      .describe('Kind of authentication: none, a token that you make there, or a token that it gives after a sign-in'),
  })
  .meta({ id: 'McpType', description: 'A well-known MCP server' })

/** GET /mcps (contract.md section 7). */
export const ListMcps = z.object({ search: searchInput('servers', 'name, description, type or address'), ...pageInput })

/** An MCP server (contract.md section 7). The values of its credentials are never returned. */
export const Mcp = z
  .object({
    id: z.string().describe('Id of the MCP server'),
    mcpType: z.string().describe('Type of the MCP server, such as `github`'),
    name: z.string().describe('Name of the MCP server'),
    description: z.string().nullable().describe('Purpose of the MCP server'),
    isActive: z.boolean().describe('Whether runs can use the MCP server'),
    ownerId: z.string().describe('Id of the user who added the MCP server'),
    organizationId: z.string().describe('Id of the organization that the MCP server belongs to'),
    source: Source.describe(
      '`operator`: declared in MCP_CONFIG. Only its permissions can be changed, to stricter ones',
    ),
    url: z.string().describe('Address of the MCP server; of the operator: its origin only, or `stdio:<name>`'),
    transport: AnyTransport.describe('Transport of the protocol'),
    headers: z
      .record(z.string(), z.string())
      .describe(`Headers that are sent with each request; \${NAME} stands for a credential`),
    truncated: truncated.describe(
      'Whether values of `headers` are cut at 4,000 characters, as in long lists. GET the MCP server by id for whole values',
    ),
    credentialsSet: z.array(z.string()).describe('The names of its credentials'),
    auth: Auth.describe('How requests are authenticated'),
    clientId: z.string().nullable().describe('Client id that a person entered'),
    clientSecretSet: z.boolean().describe('Whether a client secret is set'),
    scope: z.string().nullable().describe('Scope to ask for; null for the one that the MCP server names'),
    connection: z
      .enum(['connected', 'expired', 'none'])
      .meta({ id: 'McpConnectionState', description: 'State of a user’s connection to an MCP server' })
      .describe('Your connection to a server with `auth: oauth`; `expired`: connect again'),
    connectedAs: z.string().nullable().describe('Name of your account at the server, if it is known'),
    permissions: z.array(Permission).describe('Whether a call of its tools needs a decision'),
    usageCount: z.int().describe('Number of runs that have connected to it'),
    createdAt: timestamp.describe('Time at which the MCP server was created'),
    updatedAt: timestamp.describe('Time of the last change to the MCP server'),
  })
  .meta({ id: 'Mcp', description: 'An MCP server' })

/** A tool as its server describes it. */
export const McpTool = z
  .object({
    name: z.string().describe('Name of the tool'),
    description: z.string().describe('Description of the tool'),
    inputSchema: z.record(z.string(), z.unknown()).describe('JSON Schema of the input'),
  })
  .meta({ id: 'McpTool', description: 'A tool of an MCP server' })

export const McpResponse = ok({ mcp: Mcp })
export const McpCreated = ok({
  id: z.string().describe('Id of the MCP server'),
  name: z.string().describe('Name of the MCP server'),
  mcpType: z.string().describe('Type of the MCP server, such as `github`'),
  mcp: Mcp,
})
export const McpsResponse = ok({
  mcps: z.array(Mcp).describe('MCP servers on this page'),
  total: z.int().describe('Number of MCP servers, on all pages'),
  nextCursor,
})
export const McpConnecting = ok({
  url: z
    .string()
    .describe(
      'Page to open in a browser that is signed in as you, within 10 minutes. It leads on to the authorization server',
    ),
})
export const McpDisconnected = ok({
  message: z.string().describe('Confirmation for people'),
  revoked: z.boolean().describe('Whether the authorization server has confirmed that the tokens are revoked'),
})
export const McpDeleted = ok({ message: z.string().describe('Confirmation for people') })
export const McpTypesResponse = ok({
  types: z.array(McpType).describe('Types of MCP servers that have a known address'),
})
export const McpToolsResponse = ok({ tools: z.array(McpTool).describe('Tools that the MCP server offers') })

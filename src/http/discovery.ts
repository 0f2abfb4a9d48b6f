import packageJson from '../../package.json' with { type: 'json' }
import { SCOPES } from '../auth/scopes.ts'
import { MAX_ROWS } from '../lib/page.ts'
import { publicAddress, type Settings } from '../settings.ts'

// Descriptions of the service for programs that have no token yet (contract-2.md section 6.5).

/** Returns the answer of `GET /api/version`. */
export const version = () => ({ success: true as const, name: 'muster', version: packageJson.version })

type Limit = Settings['RATE_LIMIT']

const toLimit = (limit: Limit) => (limit ? { limit: limit.limit, window: limit.window / 1000 } : null)

/** Returns the document at `/.well-known/muster.json`: version, protocols and limits. */
export function describeService(settings: Settings) {
  const base = publicAddress(settings)
  return {
    name: 'muster',
    version: packageJson.version,
    protocols: {
      rest: { url: `${base}/api/v1`, openapi: `${base}/api/openapi.json`, docs: `${base}/api/docs` },
      trpc: { url: `${base}/trpc` },
      graphql: { url: `${base}/graphql` },
      mcp: {
        url: `${base}/mcp`,
        agent: `${base}/mcp/agents/{id}`,
        transport: 'streamable-http',
        versions: ['2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26'],
      },
      openai: { url: `${base}/openai/v1` },
      'ai-sdk': { agent: `${base}/api/v1/agents/{id}/chat` },
      'ag-ui': { agent: `${base}/api/v1/agents/{id}/ag-ui` },
      a2a: {
        agent: `${base}/a2a/agents/{id}`,
        versions: ['1.0', '0.3'],
        card: `${base}/a2a/agents/{id}/.well-known/agent-card.json`,
      },
    },
    authentication: {
      bearer: true,
      tokenPrefix: `${settings.TOKEN_PREFIX}_`,
      publicDirectory: settings.PUBLIC_DIRECTORY,
    },
    limits: {
      bodyBytes: 1024 * 1024,
      rows: MAX_ROWS,
      messageCharacters: 200_000,
      rate: toLimit(settings.RATE_LIMIT),
      runs: toLimit(settings.EXECUTE_RATE_LIMIT),
    },
  }
}

/** Returns the metadata of the MCP server as a protected resource (RFC 9728). */
export const describeMcp = (settings: Settings, issuer: string) => ({
  resource: `${publicAddress(settings)}/mcp`,
  authorization_servers: [issuer],
  scopes_supported: [...SCOPES],
  bearer_methods_supported: ['header'],
  resource_name: 'Muster',
})

/** Returns `/llms.txt`: instructions for language models that use the service (llmstxt.org). */
export function llmsText(settings: Settings): string {
  const base = publicAddress(settings)
  return `# Muster

> Runs the AI agents of an organization: durable executions, resumable streams, tasks, missions and approvals.

Every request needs \`Authorization: Bearer ${settings.TOKEN_PREFIX}_…\`, a personal access token. An accepted run continues when
the connection is lost. Repeat a POST with the same \`Idempotency-Key\` to join it.

## APIs

- [OpenAPI document](${base}/api/openapi.json): every operation of the REST API at ${base}/api/v1
- [Reference](${base}/api/docs): the same, for people
- [GraphQL](${base}/graphql): the same operations and nested reads

## Other protocols

- [Model Context Protocol](${base}/mcp): the operations as tools, skills as prompts, files as resources. One agent: ${base}/mcp/agents/{id}
- [OpenAI](${base}/openai/v1): chat completions and responses. \`model\` is an agent
- [Agent2Agent](${base}/a2a/agents/{id}): an agent with its card
- AI SDK: \`POST ${base}/api/v1/agents/{id}/chat\`. AG-UI: \`POST ${base}/api/v1/agents/{id}/ag-ui\`

## More

- [Versions and limits](${base}/.well-known/muster.json)
`
}
